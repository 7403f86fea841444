#include <fmt/format.h>

#include "cost_model.h"
#include "darkroom/core/check.h"

namespace darkroom {
namespace {

void add_bytes(Sheet& sheet) {
  sheet.section("storage");
  for (const char* phase : {"256", "512"}) {
    sheet.derive(fmt::format("record_bytes_{}", phase), "bytes/pictures",
                 fmt::format("(latent_values_{} + caption_values) * stored_value_bytes", phase),
                 fmt::format("latents and caption states of a picture at {} px", phase));
  }
  sheet.derive("images_gb", "GB", "pictures * picture_bytes / bytes_per_gb", "pictures");
  sheet.derive("latents_gb", "GB", "(pictures_256 * record_bytes_256 + pictures_512 * record_bytes_512) / bytes_per_gb",
               "latents and caption states of both phases");
  sheet.derive("checkpoints_gb", "GB", "trained_parameters * checkpoint_parameter_bytes * kept_checkpoints / bytes_per_gb", "checkpoints");
  sheet.derive("storage_gb", "GB", "images_gb + latents_gb + checkpoints_gb", "all that is stored");
}

void add_requests(Sheet& sheet) {
  sheet.section("requests");
  sheet.derive(
      "parts", "parts",
      "ceil(pictures / rows_per_image_part) + ceil(pictures_256 / rows_per_latents_part) + ceil(pictures_512 / rows_per_latents_part)",
      "files of both datasets");
  sheet.derive("written_gb", "GB", "images_gb + latents_gb + checkpoints_gb", "written to the store");
  sheet.derive("encode_read_gb", "GB", "(pictures_256 + pictures_512) * picture_bytes / bytes_per_gb", "pictures that the encoders read");
  sheet.derive("train_read_gb", "GB", "(samples_256 * record_bytes_256 + samples_512 * record_bytes_512) / bytes_per_gb",
               "latents and caption states that the trainers read");
  sheet.derive("write_requests", "requests", "parts * requests_per_part + written_gb * bytes_per_gb / transfer_bytes", "writing requests");
  sheet.derive("read_requests", "requests", "(encode_read_gb + train_read_gb) * bytes_per_gb / transfer_bytes", "reading requests");
  sheet.section("traffic");
  sheet.derive("traffic_in_gb", "GB", "images_gb", "from the web");
  sheet.derive("traffic_inside_gb", "GB", "written_gb + encode_read_gb + train_read_gb", "between machines and store");
  sheet.derive("traffic_out_gb", "GB", "model_bytes / bytes_per_gb", "to the internet: the model, once");
}

void add_stage_dollars(const Catalogue& catalogue, const std::string& role, const std::string& label, const Machine& machine,
                       const std::string& purchase, Plan& plan) {
  const Price& price = price_or_other(catalogue, machine.name, purchase);
  const std::string name = fmt::format("{}_price_{}", role, purchase);
  plan.sheet.give(name, price.dollars_per_hour, "$/h/machines", price.origin.to_text(),
                  fmt::format("an hour of a {}, {}", machine.name, price.purchase));
  if (price.purchase != purchase) {
    plan.notes.push_back(
        fmt::format("{} has no {} price of {}: its {} price is taken", catalogue.name, purchase, machine.name, price.purchase));
  }
  plan.sheet.derive(fmt::format("{}_dollars_{}", role, purchase), "$", fmt::format("{0}_hours * {0}_machines * {1}", role, name),
                    fmt::format("{}, {}", label, purchase));
}

std::string words_of(const std::string& purchase) { return purchase == "on_demand" ? "on demand" : purchase; }

}  // namespace

const Price& price_or_other(const Catalogue& catalogue, const std::string& machine, const std::string& purchase) {
  for (const std::string& wanted : {purchase, std::string("on_demand"), std::string("reserved"), std::string("spot")}) {
    if (const Price* price = catalogue.price(machine, wanted)) {
      return *price;
    }
  }
  DARKROOM_CHECK(false, "a machine of the fleet has no price:", machine);
  return catalogue.prices.front();
}

void add_storage(const StorePrice& store, Plan& plan) {
  Sheet& sheet = plan.sheet;
  add_bytes(sheet);
  add_requests(sheet);
  sheet.section("store");
  const std::string source = store.origin.to_text();
  sheet.give("store_price", store.dollars_per_gib_month, "$/GiB/months", source, fmt::format("a gibibyte for a month in {}", store.name));
  sheet.give("write_price", store.dollars_per_1000_writes, "$/thousands", source, "a thousand writing requests");
  sheet.give("read_price", store.dollars_per_1000_reads, "$/thousands", source, "a thousand reading requests");
  sheet.give("out_price", store.dollars_per_gib_out, "$/GiB", source, "a gibibyte to the internet");
  sheet.derive("storage_dollars", "$", "storage_gb / gb_per_gib * store_price * offline_hours / hours_per_month",
               "storage, all of it for as long as all stages take");
  sheet.derive("request_dollars", "$", "(write_requests * write_price + read_requests * read_price) / requests_per_thousand", "requests");
  sheet.derive("traffic_dollars", "$", "traffic_out_gb / gb_per_gib * out_price", "traffic");
}

void add_dollars(const Catalogue& catalogue, Plan& plan) {
  Sheet& sheet = plan.sheet;
  sheet.section("cost");
  for (const std::string& purchase : plan.purchases) {
    std::string total = fmt::format("train_dollars_{} + storage_dollars + request_dollars + traffic_dollars", purchase);
    add_stage_dollars(catalogue, "train", "training", plan.fleet.train.machine, purchase, plan);
    if (plan.fleet.encode) {
      add_stage_dollars(catalogue, "encode", "encoding", plan.fleet.encode->machine, purchase, plan);
      total += " + encode_dollars_" + purchase;
    }
    if (plan.fleet.download) {
      add_stage_dollars(catalogue, "download", "downloading", plan.fleet.download->machine, purchase, plan);
      total += " + download_dollars_" + purchase;
    }
    sheet.derive("total_dollars_" + purchase, "$", total, fmt::format("everything, {}", words_of(purchase)));
  }
}

void add_modes(Plan& plan) {
  Sheet& sheet = plan.sheet;
  const std::string& purchase = plan.purchases.front();
  const auto with_purchase = [&](const char* formula) { return fmt::format(fmt::runtime(formula), fmt::arg("p", purchase)); };
  sheet.section("offline or online");
  if (plan.fleet.encode) {
    sheet.derive("offline_mode_hours", "h", "encode_hours + train_hours", "offline: encode every picture once, then train");
    sheet.derive(
        "offline_mode_dollars", "$",
        with_purchase(
            "encode_dollars_{p} + train_dollars_{p} + latents_gb / gb_per_gib * store_price * offline_mode_hours / hours_per_month + "
            "train_read_gb * bytes_per_gb / transfer_bytes * read_price / requests_per_thousand"),
        "offline, with the latents' storage and reading");
    plan.modes.push_back({"offline: encode every picture once, store, then train", "offline_mode_hours", "offline_mode_dollars"});
    for (const char* phase : {"256", "512"}) {
      sheet.derive(fmt::format("online_speed_{}", phase), "pictures/s", fmt::format("min(train_speed_{0}, encode_speed_{0})", phase),
                   fmt::format("online with the encoders beside, at {} px", phase));
    }
    sheet.derive("online_pool_hours", "h", "(samples_256 / online_speed_256 + samples_512 / online_speed_512) / seconds_per_hour",
                 "online: encoders beside the trainers, every sample anew");
    sheet.derive("online_pool_dollars", "$",
                 with_purchase("online_pool_hours * (train_machines * train_price_{p} + encode_machines * encode_price_{p})"),
                 "online with the encoders beside");
    plan.modes.push_back({"online, encoders beside the trainers", "online_pool_hours", "online_pool_dollars"});
  }
  sheet.derive("online_same_hours", "h", "train_hours * online_slowdown", "online: the trainers encode, too");
  sheet.derive("online_same_dollars", "$", with_purchase("train_dollars_{p} * online_slowdown"), "online on the trainers");
  plan.modes.push_back({"online, on the trainers themselves", "online_same_hours", "online_same_dollars"});
}

void add_energy(Plan& plan) {
  Sheet& sheet = plan.sheet;
  sheet.section("energy");
  std::string total;
  const auto add = [&](const char* role, const Machine& machine) {
    sheet.give(fmt::format("{}_watts", role), machine.watts, "W/machines", machine.origin.to_text(),
               fmt::format("a {} at work", machine.name));
    sheet.derive(fmt::format("{}_kwh", role), "kWh", fmt::format("{0}_hours * {0}_machines * {0}_watts * pue / watt_hours_per_kwh", role),
                 fmt::format("energy of {}", role));
    total += fmt::format("{}{}_kwh", total.empty() ? "" : " + ", role);
  };
  add("train", plan.fleet.train.machine);
  if (plan.fleet.encode) {
    add("encode", plan.fleet.encode->machine);
  }
  if (plan.fleet.download) {
    add("download", plan.fleet.download->machine);
  }
  sheet.derive("kwh", "kWh", total, "energy of all stages");
  sheet.derive("carbon_kg", "kg", "kwh * carbon_grams_per_kwh / grams_per_kg", "carbon dioxide");
}

}  // namespace darkroom
