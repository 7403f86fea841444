#include "darkroom/train/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/source_path.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Recipe valid_recipe() {
  Recipe recipe;
  recipe.model.path = "model";
  recipe.data.path = "latents";
  return recipe;
}

std::string failure(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  return status.message();
}

TEST(recipe, defaults_are_valid_once_model_and_data_are_named) {
  EXPECT_TRUE(valid_recipe().validate().is_ok()) << valid_recipe().validate().to_string();
}

TEST(recipe, toml_gives_the_same_recipe_back) {
  Recipe recipe = valid_recipe();
  recipe.optimizer.lr = 1e-5 / 3;
  recipe.ema.warmup = false;
  recipe.samples.prompts = {"a \"quoted\" prompt", "back\\slash", "tab\tand\nline", "naïve 漢字", ""};
  const std::string text = recipe_to_toml(recipe);
  const auto back = parse_recipe(text, "text");
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(recipe_to_toml(*back), text);
  EXPECT_EQ(back->optimizer.lr, recipe.optimizer.lr);
  EXPECT_EQ(back->samples.prompts, recipe.samples.prompts);
}

TEST(recipe, every_shipped_recipe_is_valid_once_model_and_data_are_named) {
  for (const char* name : {"tiny", "tiny-vae", "sd2-256", "sd2-512"}) {
    auto recipe = load_recipe(local_files(), source_path(std::string("recipes/") + name + ".toml"));
    ASSERT_TRUE(recipe.is_ok()) << recipe.status().to_string();
    recipe->model.path = "model";
    recipe->data.raw_path = "images";
    EXPECT_TRUE(recipe->validate().is_ok()) << name << recipe->validate().to_string();
  }
}

TEST(recipe, published_recipes_see_the_published_number_of_samples) {
  const auto phase_1 = load_recipe(local_files(), source_path("recipes/sd2-256.toml"));
  const auto phase_2 = load_recipe(local_files(), source_path("recipes/sd2-512.toml"));
  EXPECT_EQ(phase_1->schedule.max_steps * phase_1->batch.global, 1'126'400'000);
  EXPECT_EQ(phase_2->schedule.max_steps * phase_2->batch.global, 1'740'800'000);
  EXPECT_EQ(phase_1->runtime.precision, "auto") << "bf16 mixed, as published, wherever there is a GPU";
  EXPECT_EQ(phase_2->runtime.precision, "auto");
}

TEST(recipe, names_the_nearest_field_for_an_unknown_one) {
  EXPECT_THAT(failure(parse_recipe("[optimizer]\nlrr = 1", "r.toml").status()), HasSubstr("'optimizer.lrr'; did you mean 'optimizer.lr'"));
  EXPECT_THAT(failure(parse_recipe("[optimiser]\nlr = 1", "r.toml").status()), HasSubstr("did you mean 'optimizer.lr'"));
  EXPECT_THAT(failure(parse_recipe("seed = 1", "r.toml").status()), HasSubstr("'seed'"));
  Recipe recipe;
  EXPECT_THAT(failure(set_recipe_field(recipe, "batch.globall=3")), HasSubstr("did you mean 'batch.global'"));
}

TEST(recipe, says_what_type_a_field_takes) {
  EXPECT_THAT(failure(parse_recipe("[batch]\nglobal = 1.5", "r.toml").status()), HasSubstr("'batch.global' must be a whole number"));
  EXPECT_THAT(failure(parse_recipe("[ema]\nwarmup = 1", "r.toml").status()), HasSubstr("true or false"));
  EXPECT_THAT(failure(parse_recipe("[samples]\nprompts = [1]", "r.toml").status()), HasSubstr("a list of texts"));
  Recipe recipe;
  EXPECT_THAT(failure(set_recipe_field(recipe, "optimizer.lr=fast")), HasSubstr("'optimizer.lr' must be a number"));
  EXPECT_THAT(failure(set_recipe_field(recipe, "optimizer.lr")), HasSubstr("section.key=value"));
}

TEST(recipe, names_the_line_of_broken_toml) {
  EXPECT_THAT(failure(parse_recipe("[batch]\nglobal = = 3", "r.toml").status()), HasSubstr("r.toml, line 2, column "));
}

TEST(recipe, set_takes_bare_text_quoted_text_numbers_and_lists) {
  Recipe recipe;
  ASSERT_TRUE(set_recipe_field(recipe, "model.path=/some/where=else").is_ok());
  EXPECT_EQ(recipe.model.path, "/some/where=else");
  ASSERT_TRUE(set_recipe_field(recipe, "model.path=\"a b\"").is_ok());
  EXPECT_EQ(recipe.model.path, "a b");
  ASSERT_TRUE(set_recipe_field(recipe, "model.path=").is_ok());
  EXPECT_EQ(recipe.model.path, "");
  ASSERT_TRUE(set_recipe_field(recipe, "optimizer.lr=1").is_ok());
  EXPECT_EQ(recipe.optimizer.lr, 1.0);
  ASSERT_TRUE(set_recipe_field(recipe, "samples.prompts=[\"a\", \"b\"]").is_ok());
  EXPECT_EQ(recipe.samples.prompts, (std::vector<std::string>{"a", "b"}));
}

TEST(recipe, validation_names_the_first_bad_field_and_its_value) {
  struct Case {
    const char* setting;
    const char* field;
  };
  for (const auto& [setting, field] :
       {Case{"batch.global=0", "batch.global"}, Case{"runtime.threads=0", "runtime.threads"},
        Case{"objective.caption_dropout=1.5", "objective.caption_dropout"}, Case{"objective.min_snr_gamma=-1", "objective.min_snr_gamma"},
        Case{"ema.decay=1.0", "ema.decay"}, Case{"optimizer.lr=nan", "optimizer.lr"}, Case{"noise.beta_end=0.0001", "noise.beta_end"},
        Case{"runtime.precision=bf16", "runtime.precision"}, Case{"samples.sampler=magic", "samples.sampler"},
        Case{"runtime.gradient_groups=0", "runtime.gradient_groups"}, Case{"runtime.gradient_groups=3", "runtime.gradient_groups"},
        Case{"runtime.gradient_groups=4096", "batch.micro"}, Case{"runtime.reduction=any", "runtime.reduction"},
        Case{"runtime.gradient_wire=float16", "runtime.gradient_wire"}, Case{"runtime.watchdog_seconds=0", "runtime.watchdog_seconds"},
        Case{"runtime.progress_seconds=0", "runtime.progress_seconds"}, Case{"optimizer.max_skipped=-1", "optimizer.max_skipped"},
        Case{"optimizer.epsilon=0", "optimizer.epsilon"}, Case{"model.path=", "model.path"}}) {
    Recipe recipe = valid_recipe();
    ASSERT_TRUE(set_recipe_field(recipe, setting).is_ok()) << setting;
    EXPECT_THAT(failure(recipe.validate()), HasSubstr(field));
  }
}

TEST(recipe, takes_no_text_that_its_own_file_could_not_hold) {
  const std::string bad = "lat\xff";
  for (auto place : {+[](Recipe& recipe) { return &recipe.model.path; }, +[](Recipe& recipe) { return &recipe.data.path; },
                     +[](Recipe& recipe) { return &recipe.validation.path; }}) {
    Recipe recipe = valid_recipe();
    *place(recipe) = bad;
    EXPECT_THAT(failure(recipe.validate()), AllOf(HasSubstr("must be UTF-8"), HasSubstr("lat\uFFFD")));
  }
  Recipe recipe = valid_recipe();
  recipe.samples.prompts = {"good", bad};
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("'samples.prompts' must be UTF-8"));
  EXPECT_THAT(failure(set_recipe_field(recipe, "data.path=" + bad)), HasSubstr("'data.path' must be UTF-8"));
}

// TOML writes it as \u0000, but the text of a PNG ends there.
TEST(recipe, takes_no_nul_in_a_text) {
  Recipe recipe = valid_recipe();
  recipe.samples.prompts = {"good", std::string("a\0b", 3)};
  EXPECT_THAT(failure(recipe.validate()), AllOf(HasSubstr("'samples.prompts' must not have a NUL"), HasSubstr("a\uFFFDb")));
}

TEST(recipe, an_autoencoder_has_an_error_to_learn_from) {
  Recipe recipe = valid_recipe();
  recipe.data.path.clear();
  recipe.data.raw_path = "images";
  recipe.objective.kind = "autoencoder";
  recipe.objective.l1_weight = recipe.objective.mse_weight = recipe.objective.log_mse_weight = 0;
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("objective.l1_weight, objective.mse_weight and objective.log_mse_weight"));
  recipe.objective.log_mse_weight = 0.1;
  EXPECT_TRUE(recipe.validate().is_ok());
}

TEST(recipe, zero_terminal_snr_wants_velocity_and_no_min_snr) {
  Recipe recipe = valid_recipe();
  recipe.samples.sampler = "dpmpp_2m_karras";
  recipe.noise.zero_terminal_snr = true;
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("objective.prediction=v_prediction"));
  recipe.objective.prediction = "v_prediction";
  EXPECT_TRUE(recipe.validate().is_ok());
  recipe.objective.min_snr_gamma = 5.0;
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("objective.min_snr_gamma"));
  recipe.noise.zero_terminal_snr = false;
  EXPECT_TRUE(recipe.validate().is_ok());
}

TEST(recipe, ranks_agree_on_all_but_places_memory_and_workers) {
  Recipe here = valid_recipe(), there = valid_recipe();
  there.model.path = "elsewhere";
  there.data.memory_bytes += 1;
  there.runtime.workers = 0;
  EXPECT_EQ(recipe_agreement(here), recipe_agreement(there));
  there.optimizer.lr *= 2;
  EXPECT_NE(recipe_agreement(here), recipe_agreement(there));
  EXPECT_TRUE(recipe_agreement(here).contains("runtime.seed"));
  there = here;
  there.validation.path = "somewhere";
  EXPECT_NE(recipe_agreement(here), recipe_agreement(there));
  here.validation.path = "elsewhere";
  EXPECT_EQ(recipe_agreement(here), recipe_agreement(there));
}

TEST(recipe, wants_exactly_one_dataset) {
  Recipe recipe = valid_recipe();
  recipe.data.raw_path = "images";
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("both"));
  recipe.data.path.clear();
  recipe.data.raw_path.clear();
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("none"));
  recipe.objective.kind = "autoencoder";
  recipe.data.path = "latents";
  EXPECT_THAT(failure(recipe.validate()), HasSubstr("data.raw_path"));
}

TEST(recipe, a_missing_file_is_a_usage_error) {
  EXPECT_THAT(failure(load_recipe(local_files(), "/no/such/recipe.toml").status()), HasSubstr("recipes/tiny.toml"));
}

TEST(recipe, only_fields_that_are_fixed_for_a_run_conflict) {
  const Recipe before = valid_recipe();
  Recipe now = before;
  now.schedule.max_steps += 1;
  now.optimizer.lr = 3;
  now.data.path = "moved";
  EXPECT_TRUE(conflicting_fields(now, before).empty());
  now.runtime.seed = 7;
  now.batch.global = 8;
  const auto conflicts = conflicting_fields(now, before);
  ASSERT_EQ(conflicts.size(), 2U);
  EXPECT_EQ(conflicts[0], "batch.global (was 4096, is 8)");
  EXPECT_EQ(conflicts[1], "runtime.seed (was 2024, is 7)");
}

// What a change of each field would make of the pictures of a run, by its objective.
TEST(recipe, what_becomes_of_pictures_is_fixed_where_a_run_reads_them) {
  struct Case {
    const char* setting;
    const char* conflict;
    bool is_fixed_for_autoencoders;
  };
  for (const auto& [setting, conflict, is_fixed_for_autoencoders] :
       {Case{"data.resize=lanczos", "data.resize (was \"bilinear\", is \"lanczos\")", true},
        Case{"data.crop=random", "data.crop (was \"center\", is \"random\")", true},
        Case{"data.orientation=apply", "data.orientation (was \"ignore\", is \"apply\")", true},
        Case{"data.storage_dtype=float32", "data.storage_dtype (was \"float16\", is \"float32\")", false},
        Case{"data.tokenizer_dialect=open_clip", "data.tokenizer_dialect (was \"hf\", is \"open_clip\")", false},
        Case{"data.process_seed=7", "data.process_seed (was 0, is 7)", false}}) {
    const Recipe latents = valid_recipe();
    Recipe now = latents;
    ASSERT_TRUE(set_recipe_field(now, setting).is_ok()) << setting;
    EXPECT_THAT(conflicting_fields(now, latents), IsEmpty()) << "stored latents are what they are";
    Recipe pictures = latents;
    pictures.data.path.clear();
    pictures.data.raw_path = "images";
    now = pictures;
    ASSERT_TRUE(set_recipe_field(now, setting).is_ok()) << setting;
    EXPECT_THAT(conflicting_fields(now, pictures), ElementsAre(conflict));
    pictures.objective.kind = now.objective.kind = "autoencoder";
    EXPECT_EQ(conflicting_fields(now, pictures).size(), is_fixed_for_autoencoders ? 1U : 0U) << setting;
  }
}

}  // namespace
}  // namespace darkroom
