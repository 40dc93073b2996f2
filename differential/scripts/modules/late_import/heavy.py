CALLS = 0


def compute(i):
    global CALLS
    CALLS += 1
    return i * 7, CALLS
