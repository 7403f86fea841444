#pragma once

#include <array>
#include <string_view>

namespace darkroom {

// What reads bytes of strangers, one function each (NAME_target.cpp). Each takes any bytes, and ends with CheckFailure where a promise of
// the reader's header is broken. ingest_test (serve_test: the last one) replays them on their corpus (corpus/NAME) and on mutations of it;
// with clang, tools/check/fuzz.sh makes programs of libFuzzer of them (libfuzzer_entry.cpp).
void fuzz_probe(std::string_view bytes);    ///< A picture's header.
void fuzz_picture(std::string_view bytes);  ///< A small picture, decoded here.
void fuzz_footer(std::string_view bytes);   ///< The end of a Parquet file.
void fuzz_record(std::string_view bytes);   ///< What a part's footer says of it.
void fuzz_robots(std::string_view bytes);   ///< A path, a line break, a robots.txt.
void fuzz_url(std::string_view bytes);      ///< A URL, a line break, a Location.
void fuzz_json(std::string_view bytes);     ///< A JSON document, and a table of text.
void fuzz_where(std::string_view bytes);    ///< A condition of --where.

void fuzz_request(std::string_view bytes);  ///< What a client of `serve` sends over a connection.

struct FuzzTarget {
  const char* name;
  void (*take)(std::string_view bytes);
};

inline constexpr std::array kFuzzTargets = {FuzzTarget{"probe", fuzz_probe},   FuzzTarget{"picture", fuzz_picture},
                                            FuzzTarget{"footer", fuzz_footer}, FuzzTarget{"record", fuzz_record},
                                            FuzzTarget{"robots", fuzz_robots}, FuzzTarget{"url", fuzz_url},
                                            FuzzTarget{"json", fuzz_json},     FuzzTarget{"where", fuzz_where}};

inline constexpr FuzzTarget kRequestTarget{"request", fuzz_request};

}  // namespace darkroom
