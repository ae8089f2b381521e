"""What segments hold, in numbers that add up."""
