"""`python -m darkroom_ray`: the command darkroom-ray."""
import sys

from darkroom_ray.command import main

sys.exit(main(sys.argv[1:]))
