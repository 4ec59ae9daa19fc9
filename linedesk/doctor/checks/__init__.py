"""The checks of `linedesk doctor`, one module for each part of an installation."""
