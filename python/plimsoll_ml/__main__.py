"""python -m plimsoll_ml is the program."""
from plimsoll_ml import main

main()
