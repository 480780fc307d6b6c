"""What makes a loop that exists private: its loader, its noise, the arguments it came with."""
