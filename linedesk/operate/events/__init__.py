"""One event or many: its rows, what became of it, its story, and the lists."""
