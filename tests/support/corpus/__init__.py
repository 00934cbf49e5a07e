"""Small model folders written by hand, each a control or a control with one change, and what an assessment owes each."""
