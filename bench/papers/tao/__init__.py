"""O'Ryan, Schmidt and others: TAO's Real-time Event Service. Figures 13 to 15 and tables 1 and 2.

The paper's machine had one processor of 300 MHz; this one has two cores and is shared. So what is compared
is the shape: what grows with what, and where deadlines begin to be missed.
"""
