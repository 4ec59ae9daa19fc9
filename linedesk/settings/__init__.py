"""The settings: names, ranges, sources, and the errors of a wrong one."""
