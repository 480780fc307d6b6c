"""Lower bounds on epsilon: streams of queries whose answers are told apart."""
