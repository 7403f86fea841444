#include "painting/compare_sides.h"

#include <set>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"

namespace darkroom {
namespace {

bool decides_pictures(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".json") || path.ends_with(".txt");
}

// The files of a part: of its folder, or the single file that its path leads into.
Result<std::vector<std::string>> files_of_part(const std::string& part) {
  std::vector<std::string> paths;
  DARKROOM_ASSIGN_OR_RETURN(const bool is_folder, local_files().exists(part));
  if (!is_folder) {
    paths.push_back(parent_folder(part));
    return paths;
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto found, local_files().list_tree(part));
  for (const FileInfo& info : found) {
    if (decides_pictures(info.path)) {
      paths.push_back(info.path);
    }
  }
  return paths;
}

}  // namespace

Result<std::string> model_identity(const PainterSource& source, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel model, find_model(source));
  Sha256 hash;
  std::set<std::string> seen;
  for (const std::string& part : {model.parts.unet, model.parts.vae, model.parts.text_encoder, model.tokenizer_folder}) {
    DARKROOM_ASSIGN_OR_RETURN(const auto paths,
                              part.empty() ? Result<std::vector<std::string>>(std::vector<std::string>()) : files_of_part(part));
    for (const std::string& path : paths) {
      if (seen.insert(path).second) {
        DARKROOM_ASSIGN_OR_RETURN(const FileDigest digest, digest_file(local_files(), path, stop));
        hash.update(file_name(path) + " " + digest.sha256 + "\n");
      }
    }
    hash.update("part\n");
  }
  const std::string recorded = model.checkpoint ? model.checkpoint->tokenizer_dialect : std::string();
  hash.update(model.parts.scheduler.dump() + "\n" + (source.tokenizer_dialect.empty() ? recorded : source.tokenizer_dialect));
  return hash.finish_hex();
}

Result<OpenedSide> open_side(StoreSet& stores, const std::string& model, PainterSource source, const std::stop_token& stop) {
  source.model = model;
  source.is_one_of_several = true;
  OpenedSide opened;
  opened.side.model = replace_invalid_utf8(recorded_uri(model)).first;
  DARKROOM_ASSIGN_OR_RETURN(opened.copies, fetch_source(stores, source, stop));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_checkpoint, is_local_checkpoint(source.model));
  if (!is_checkpoint) {
    source.weights = "ema";
  }
  opened.side.weights = source.weights;
  DARKROOM_ASSIGN_OR_RETURN(opened.side.identity, model_identity(source, stop));
  opened.side.open = [source] { return open_painter(source); };
  return opened;
}

}  // namespace darkroom
