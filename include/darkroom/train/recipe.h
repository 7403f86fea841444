#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Everything that decides a training run, as one aggregate: recipes/*.toml hold its sections, `--set section.key=value`
/// takes any key, the run folder's recipe.toml is its resolved form. Defaults are the published SD2 recipe at 256 px.
struct Recipe {
  struct Model {
    std::string path;              ///< Model folder: frozen parts, and the trained part's config or weights.
    std::string start = "random";  ///< "random": fresh weights from the config; "weights": the folder's weights.
  } model;
  struct Data {
    std::string path;                         ///< Latents dataset (offline).
    std::string raw_path;                     ///< Image dataset (online, and for the autoencoder objective).
    int64_t resolution = 256;                 ///< Pixels of a side.
    int64_t window_blocks = 16;               ///< Rows are shuffled inside this many blocks of a lane.
    int64_t memory_bytes = int64_t{2} << 30;  ///< Decoded data kept in memory; a dataset that fits is read once.
    int64_t batches_ahead = 4;                ///< Batches prepared ahead of the step.
    int64_t rows_per_file = 5000;             ///< Online: as `process --rows-per-file`, for the same order.
    std::string storage_dtype = "float16";    ///< Online: as `process --dtype`.
    std::string resize = "bilinear";          ///< Online: as `process --resize`.
    std::string crop = "center";              ///< Online: as `process --crop`.
    std::string orientation = "ignore";       ///< Online: as `process --orientation`.
    std::string tokenizer_dialect = "hf";     ///< Online: as `process --tokenizer-dialect`.
    int64_t process_seed = 0;                 ///< Online: as `process --seed`.
  } data;
  struct Objective {
    std::string kind = "diffusion";      ///< "diffusion" or "autoencoder".
    std::string prediction = "epsilon";  ///< "epsilon" or "v_prediction"; must be the model's scheduler's.
    double caption_dropout = 0.1;        ///< Share of captions replaced by the empty one.
    double min_snr_gamma = 0.0;          ///< Min-SNR weights of the timesteps (5 in the paper); 0: all alike.
    double l1_weight = 1.0;              ///< Autoencoder: weight of the mean absolute error.
    double mse_weight = 1.0;             ///< Autoencoder: weight of the mean squared error.
    double log_mse_weight = 0.0;         ///< Autoencoder: weight of ln(MSE + 1e-4) of each picture.
    double kl_weight = 1e-6;             ///< Autoencoder: weight of the KL divergence to N(0, 1).
  } objective;
  struct Noise {
    int64_t num_timesteps = 1000;                 ///< Length of the forward process.
    std::string beta_schedule = "scaled_linear";  ///< "scaled_linear" or "linear".
    double beta_start = 0.00085;                  ///< beta at t = 0.
    double beta_end = 0.012;                      ///< beta at the last t.
    bool zero_terminal_snr = false;               ///< Rescale so that the last t is pure noise; wants v_prediction.
  } noise;
  struct Optimizer {
    double lr = 1e-4;            ///< Peak learning rate of AdamW.
    double beta1 = 0.9;          ///< Decay of the first moment.
    double beta2 = 0.999;        ///< Decay of the second moment.
    double epsilon = 1e-8;       ///< Added to the root of the second moment.
    double weight_decay = 1e-2;  ///< Decoupled weight decay.
    double clip_norm = 1.0;      ///< Largest gradient norm; 0: no clipping.
    int64_t max_skipped = 0;     ///< Steps of the run that may be left out because a loss or the gradient was not finite.
  } optimizer;
  struct Schedule {
    std::string kind = "constant";  ///< After warm-up: "constant" or "cosine".
    int64_t max_steps = 275000;     ///< Steps of the run, and the horizon of the cosine.
    int64_t warmup_steps = 10000;   ///< Linear warm-up from 0.
    double final_fraction = 0.0;    ///< Cosine: share of lr at the last step.
  } schedule;
  struct Ema {
    double decay = 0.9999;  ///< Of the weights' moving average; 0: the average is the weights.
    bool warmup = true;     ///< Use min(decay, (1 + n) / (10 + n)) at update n.
  } ema;
  struct BatchSizes {
    int64_t global = 4096;  ///< Samples a step.
    int64_t micro = 32;     ///< Samples a forward pass.
  } batch;
  struct Checkpoints {
    int64_t every_steps = 10000;  ///< Steps between checkpoints; 0: only at the end.
    int64_t keep_last = 3;        ///< Newest ones kept.
    int64_t keep_every = 0;       ///< Those at multiples of this step are kept for good; 0: none.
  } checkpoint;
  struct Validation {
    std::string path;             ///< Latents dataset held out; empty: no validation.
    int64_t every_steps = 10000;  ///< Steps between validations.
    int64_t num_rows = 1024;      ///< Rows scored, the first ones.
  } validation;
  struct Samples {
    int64_t every_steps = 10000;       ///< Steps between previews; 0: none.
    std::vector<std::string> prompts;  ///< Painted with fixed seeds; empty: none.
    std::string sampler = "ddim";      ///< One of `sample --sampler`.
    int64_t steps = 50;                ///< Sampling steps.
    double guidance = 7.5;             ///< Guidance scale.
    int64_t seed = 0;                  ///< Prompt i uses seed + i.
  } samples;
  struct Runtime {
    int64_t seed = 2024;          ///< Of every random draw of the run.
    int64_t threads = 1;          ///< Intra-op threads of the step; part of the bits.
    int64_t workers = 1;          ///< Micro-batches computed side by side, in `threads` threads each; no bit. 0: one a core.
    std::string device = "auto";  ///< Where the step runs: "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".
    /// What the network computes in: "float32", "bfloat16" beside float32 master weights, or "auto": that on a GPU, float32 on the CPU.
    std::string precision = "float32";
    bool graphs = true;               ///< On a GPU: record a micro-batch's passes and the update once, then replay them; no bit.
    int64_t lanes = 8;                ///< Lanes of the canonical order.
    int64_t gradient_groups = 1;      ///< Parts of a batch that are added in a fixed tree: as many ranks, or fewer, have the same bits.
    std::string reduction = "exact";  ///< Between ranks: "exact", or "fast": the library's order, other bits for other numbers of ranks.
    std::string gradient_wire = "float32";  ///< Of sums of groups, kept and sent: "float32", or "bfloat16" (half the bytes, other bits).
    bool overlap = true;                    ///< Gradients are sent while the last backward pass of a step goes on; no bit.
    bool background_saves = true;           ///< Checkpoints between steps are written from a copy in memory while training goes on; no bit.
    int64_t watchdog_seconds = 30;          ///< A rank without a sign of life for so long is lost.
    int64_t progress_seconds = 1800;        ///< One that lives but has not got on for so long (a disk that hangs) is lost, too.
    int64_t log_every = 1;                  ///< Steps between lines of metrics.jsonl.
  } runtime;

  /// kInvalidArgument naming the first bad field and its value.
  Status validate() const;
};

/// Parses a recipe. Errors: kInvalidArgument (TOML syntax with its line; an unknown key, naming the nearest one; a wrong
/// type). Does not validate: flags may still fill required fields.
Result<Recipe> parse_recipe(std::string_view toml, std::string_view name);
/// Reads and parses a recipe file. Errors: also kInvalidArgument when the file does not exist (it is a flag's value).
Result<Recipe> load_recipe(FileSystem& files, const std::string& path);
/// Applies one `section.key=value`; the value is TOML, or bare text for text fields.
/// Errors: kInvalidArgument (no '=', unknown key with the nearest one, wrong type).
Status set_recipe_field(Recipe& recipe, std::string_view assignment);
/// What a field takes.
enum class RecipeFieldKind { kFlag, kWhole, kNumber, kText, kTexts };
/// Errors: kInvalidArgument (unknown key with the nearest one).
Result<RecipeFieldKind> recipe_field_kind(std::string_view name);
/// A field's value as set_recipe_field() takes it, text without quotes. Errors: as above.
Result<std::string> recipe_field_text(const Recipe& recipe, std::string_view name);
/// The recipe as TOML with every field; parse_recipe gives the same recipe back.
std::string recipe_to_toml(const Recipe& recipe);
/// What all ranks of a run must have alike, as a JSON object by "section.key": every field but places, memory sizes and workers.
nlohmann::json recipe_agreement(const Recipe& recipe);
/// The recipe as an object of sections with every field.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);
/// Fields that are fixed for a run (the order of the data, the objective, the noise; where `now` reads pictures, also what becomes of
/// those) and differ between two recipes, as "section.key (was X, is Y)" texts; a run goes on only if there are none. Lengths, rates,
/// hooks, paths and memory sizes may change between starts.
std::vector<std::string> conflicting_fields(const Recipe& now, const Recipe& before);

}  // namespace darkroom
