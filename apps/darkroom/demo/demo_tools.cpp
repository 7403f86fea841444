#include "demo_tools.h"

#include <cstdlib>
#include <filesystem>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/model_folder.h"

namespace darkroom {
namespace {

constexpr const char* kCorpusTool = "tools/corpus/make_corpus.py";
constexpr int kLevels = 3;  // build/darkroom or build/release/darkroom.

Result<std::string> find_source_folder() {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) {
    return Status::unavailable("cannot tell where this program lies; /proc/self/exe:", error.message());
  }
  std::string folder = parent_folder(program);
  for (int level = 0; level < kLevels; ++level) {
    folder = parent_folder(folder);
    DARKROOM_ASSIGN_OR_RETURN(const bool is_found, local_files().exists(join_path(folder, kCorpusTool)));
    if (is_found) {
      return folder;
    }
  }
  return Status::not_found(
      "the demo needs the source folder with tools/corpus/make_corpus.py above the program; run build/darkroom as `make build` "
      "left it (program):",
      program);
}

Status require_file(const std::string& path, const char* message) {
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, local_files().exists(path));
  return exists ? Status::ok() : Status::not_found(message, path);
}

Status require_complete_model(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder model, open_model_folder(path));
  if (!model.has_unet || !model.has_vae || !model.has_text_encoder || !model.has_tokenizer || model.scheduler_config.is_null()) {
    return Status::not_found(
        "the demo needs a complete model folder: unet, vae, text_encoder, tokenizer, scheduler; look with `darkroom models "
        "check`:",
        path);
  }
  return Status::ok();
}

}  // namespace

Result<DemoTools> find_demo_tools(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string source, find_source_folder());
  const char* python = std::getenv("DARKROOM_PYTHON");
  const bool has_python = python != nullptr && *python != '\0';
  DemoTools tools{.python = has_python ? std::string(python) : join_path(source, ".venv/bin/python"),
                  .corpus_tool = join_path(source, kCorpusTool),
                  .recipe = join_path(source, "recipes/tiny.toml"),
                  .model = model.empty() ? join_path(source, "models/tiny") : model};
  DARKROOM_RETURN_IF_ERROR(require_file(
      tools.python,
      "making the corpus needs Python with fontTools, Pillow and pyarrow: run `make setup`, or name one in DARKROOM_PYTHON; looked for:"));
  DARKROOM_RETURN_IF_ERROR(require_file(tools.recipe, "the demo trains by a recipe that is missing; check out the source folder again:"));
  DARKROOM_RETURN_IF_ERROR(require_complete_model(tools.model));
  return tools;
}

}  // namespace darkroom
