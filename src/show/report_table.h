#pragma once

#include <cstdint>
#include <string>

#include "darkroom/show/inspect.h"

namespace darkroom {

/// A table for a terminal that is `width` characters wide; 0: whole, however wide. Where a table without a head is too wide its
/// values go on in further lines; one with a head has its widest cells clipped, or, where not enough of them would be left,
/// is printed as one column a line. Widths count characters of East Asian scripts and emoji as two.
std::string table_text(const ReportTable& table, int64_t width);

/// The table as HTML; columns of numbers stand right-aligned.
std::string table_html(const ReportTable& table);

}  // namespace darkroom
