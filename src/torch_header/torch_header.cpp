#include "torch_header.h"
