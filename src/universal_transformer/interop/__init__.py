"""Models of other people, and ours in other people's hands."""
