"""The pure loop that decides, and the driver that performs what it decides."""
