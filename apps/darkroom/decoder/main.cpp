#include "darkroom/image/decoder_child.h"

// darkroom-decoder: decodes pictures for the program that started it, locked in (docs/sandbox.md).
int main(int argc, char** argv) { return darkroom::serve_pictures(argc, argv, *darkroom::decoder_in_process()); }
