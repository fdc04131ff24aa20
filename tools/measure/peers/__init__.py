"""glit beside other packages on the same work."""
