"""Where Choices run and are built: Slots, and builders in other processes."""
