NAME = "tool"
