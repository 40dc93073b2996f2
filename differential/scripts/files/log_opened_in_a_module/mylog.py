LOG = open("log.txt", "w")


def note(text):
    LOG.write(text + "\n")
    LOG.flush()
