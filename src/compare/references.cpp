#include "references.h"

#include <fmt/format.h>

#include <utility>

#include "darkroom/compare/dataset_pictures.h"
#include "darkroom/image/resample.h"

namespace darkroom {

ReducedPicture retrieval_form(const Image& picture) {
  return reduce_picture(resize(picture, kRetrievalSide, kRetrievalSide, Filter::kBilinear));
}

Result<CompareReferences> read_compare_references(FileSystem& files, const std::string& uri, const CompareRecord& record,
                                                  PictureDecoder& decoder, const std::stop_token& stop,
                                                  const std::function<Status(const Image&)>& visit) {
  if (record.shared.width != record.shared.height) {
    return Status::failed_precondition("--references are cut to squares, and the painted pictures are none; choose another --size:",
                                       fmt::format("{}x{}", record.shared.width, record.shared.height));
  }
  std::map<std::string, size_t> prompts;
  for (const std::string& prompt : record.prompts()) {
    prompts.emplace(prompt, prompts.size());
  }
  CompareReferences references;
  const auto add = [&](DatasetPicture row) -> Status {
    if (!row.picture.is_ok()) {
      ++references.num_bad;
      return Status::ok();
    }
    const Image& picture = row.picture.value();
    references.all.push_back(retrieval_form(picture));
    DARKROOM_RETURN_IF_ERROR(visit ? visit(picture) : Status::ok());
    if (const auto prompt = prompts.find(row.caption); prompt != prompts.end()) {
      references.of_prompt.try_emplace(prompt->second, CompareReferences::Own{references.all.size() - 1, std::move(row.picture).value()});
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(visit_dataset_pictures(files, uri, {.resolution = record.shared.width}, decoder, stop, add));
  if (references.of_prompt.empty()) {
    return Status::failed_precondition("--references holds no good picture whose caption is one of the prompts (dataset, good, bad):", uri,
                                       references.all.size(), references.num_bad);
  }
  return references;
}

}  // namespace darkroom
