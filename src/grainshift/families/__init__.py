"""The five families of decisions, five folders of one shape; none knows another."""
