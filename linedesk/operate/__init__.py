"""The reading and acting of operators, for the commands and for the web page."""
