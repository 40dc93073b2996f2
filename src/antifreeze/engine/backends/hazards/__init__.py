"""What does not survive a fork: handles and threads that a dataset holds, and thread pools of libraries that it uses.

A hazard is here because it was seen to hang, crash or corrupt forked workers that use it, every time. What only may do
harm (other threads, a CUDA context) is no reason to start otherwise than torch does; it is named when a worker freezes.
"""
