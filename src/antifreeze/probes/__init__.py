"""Where facts come from: these packages ask the machine, the source and the program; checks only read what they found.

surroundings    the machine
source/         the script, as it is written; `syntax` has the questions about its trees
objects/        a live loader, and what its dataset holds
trials/         starts a program, watches its loaders being tried, and reads what it wrote: `records`, `record_files`
target/         runs inside that program: catches the first loader, tries it in one way after the other
processes/      a program that runs already, seen from outside
places          how a line of code is named, and whose it is
bounded         programs that end with us, or at a deadline
"""
