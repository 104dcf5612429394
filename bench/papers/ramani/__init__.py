"""The experiments of Ramani, Dasarathy and Trivedi: healing by state, and the rate that loses nothing."""
