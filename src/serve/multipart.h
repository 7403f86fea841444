#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A part of a form.
struct FormPart {
  std::string name = {};
  bool is_file = false;        ///< Whether it has a file name, whatever that is: it is not looked at.
  std::string_view body = {};  ///< Lies in what was read.
};

/// How much a form may be.
struct FormLimits {
  size_t max_parts = 64;
  size_t max_part_header_bytes = 4'096;  ///< Of one part.
};

/// The boundary that a Content-Type names. Errors: kInvalidArgument: it is not multipart/form-data with one boundary of 1 to 70
/// characters (RFC 2046, section 5.1.1).
Result<std::string> form_boundary(std::string_view content_type);

/// Splits a form (RFC 7578) into its parts. Strict: lines end in CR LF, nothing but white space stands before the first delimiter or behind
/// the last, each part has one Content-Disposition: form-data with one name, which is in quotes or a token; a transfer encoding other than
/// 7bit, 8bit and binary is refused, and so is a name*. Takes linear time. Errors: kInvalidArgument naming the part.
Result<std::vector<FormPart>> read_form(std::string_view body, std::string_view boundary, const FormLimits& limits = {});

}  // namespace darkroom
