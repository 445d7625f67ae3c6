"""Reading what users have."""
