from darkroom.launcher import main

main()
