#include "demo_tools.h"

#include "darkroom/nn/model_folder.h"
#include "resources.h"

namespace darkroom {
namespace {

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
  DemoTools tools{.model = model};
  if (model.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(tools.model, find_resource("models/tiny"));
  }
  DARKROOM_ASSIGN_OR_RETURN(tools.corpus_tool, find_resource("tools/corpus/make_corpus.py"));
  DARKROOM_ASSIGN_OR_RETURN(tools.recipe, find_resource("recipes/tiny.toml"));
  DARKROOM_ASSIGN_OR_RETURN(tools.python, find_python());
  DARKROOM_RETURN_IF_ERROR(require_complete_model(tools.model));
  return tools;
}

}  // namespace darkroom
