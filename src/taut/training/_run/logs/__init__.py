"""What is told about the course of a run: callbacks, files of rows, the progress bar."""
