"""What operators read and do, for the commands and the web page alike."""
