#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.h"
#include "darkroom/files/file_system.h"
#include "darkroom/text/clip_tokenizer.h"
#include "owned_array.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

std::unique_ptr<ClipTokenizer> open_tokenizer(const std::string& folder, const std::string& dialect_name) {
  const TokenizerDialect dialect = value_or_raise(parse_tokenizer_dialect(dialect_name));
  return value_or_raise(without_gil([&] { return ClipTokenizer::load(local_files(), folder, dialect); }));
}

nb::ndarray<nb::numpy, int32_t> ids_of(const ClipTokenizer& tokenizer, const std::vector<std::string>& captions, int threads) {
  if (threads < 1) {
    raise_failure(Status::invalid_argument("threads must be at least 1, got:", threads));
  }
  std::vector<int32_t> ids(captions.size() * ClipTokenizer::kContextLength);
  without_gil([&] {
    const std::vector<std::string_view> views(captions.begin(), captions.end());
    std::vector<Unported> unported(captions.size());
    tokenizer.encode_batch(views, threads, ids, unported);
  });
  return owned_array(std::move(ids), {captions.size(), size_t{ClipTokenizer::kContextLength}});
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<ClipTokenizer>(module, "Tokenizer")
      .def(nb::new_(&open_tokenizer), nb::arg("folder"), nb::arg("dialect"))
      .def("encode", &ids_of, nb::arg("captions"), nb::arg("threads"))
      .def_prop_ro("fingerprint", [](const ClipTokenizer& tokenizer) { return tokenizer.fingerprint(); })
      .def_prop_ro("vocabulary_size", &ClipTokenizer::vocabulary_size);
}

}  // namespace darkroom
