import os
import queue
import random
import threading
import uuid
import numpy as np

NUMPY, PYTHON, PID, UID = np.random.default_rng(), random.Random(), os.getpid(), uuid.uuid4().hex
_questions, _answers = queue.Queue(), queue.Queue()


def _serve():
    while True:
        _answers.put(_questions.get() * 2)


threading.Thread(target=_serve, daemon=True).start()


def ask(i):
    _questions.put(i)
    return _answers.get(timeout=10)
