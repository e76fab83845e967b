//! Input that cannot be used gives an error that says why.

use mathneuro_capture::tch::Device;
use mathneuro_capture::{
    Batch, CollectOptions, KvCache, LoadOptions, LogitsToKeep, Model, Tokenizer, collect_norms,
};
use safetensors::Dtype;
use serde_json::json;

use crate::common::*;

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn an_unknown_family_lists_the_known_ones() {
    let copy =
        Copy::of("tiny-llama").config(|c| drop(c.insert("model_type".into(), json!("rwkv"))));
    says(&copy.error(), &["rwkv", "llama", "qwen2"]);
    let copy = Copy::of("tiny-llama").config(|c| drop(c.remove("model_type")));
    says(&copy.error(), &["has no `model_type`", "llama", "qwen2"]);
    assert!(!copy.error().contains("auto_map"));
}

#[test]
fn code_that_comes_with_a_model_is_never_run() {
    let map = || json!({"AutoModelForCausalLM": "modeling_own.OwnModel"});
    let copy = Copy::of("tiny-llama").config(|c| {
        c.insert("model_type".into(), json!("own"));
        c.insert("auto_map".into(), map());
    });
    says(&copy.error(), &["`own`", "auto_map", "never run"]);
    // A known family needs none.
    let copy = Copy::of("tiny-llama").config(|c| drop(c.insert("auto_map".into(), map())));
    load(&copy.open());
}

#[test]
fn sizes_that_disagree_with_the_tensors_name_tensor_and_both_shapes() {
    let copy =
        Copy::of("tiny-llama").config(|c| drop(c.insert("intermediate_size".into(), json!(81))));
    says(
        &copy.error(),
        &["mlp.gate_proj.weight", "[80, 48]", "[81, 48]"],
    );
    let copy = Copy::of("tiny-llama").config(|c| drop(c.insert("vocab_size".into(), json!(200))));
    says(
        &copy.error(),
        &["model.embed_tokens.weight", "[97, 48]", "[200, 48]"],
    );
    let copy =
        Copy::of("tiny-llama").config(|c| drop(c.insert("num_key_value_heads".into(), json!(4))));
    says(&copy.error(), &["num_key_value_heads", "4", "6"]);
}

#[test]
fn missing_and_unknown_tensors_are_named() {
    let more =
        Copy::of("tiny-llama").config(|c| drop(c.insert("num_hidden_layers".into(), json!(3))));
    says(
        &more.error(),
        &[
            "9 tensors are missing",
            "model.layers.2.input_layernorm.weight",
        ],
    );
    let less =
        Copy::of("tiny-llama").config(|c| drop(c.insert("num_hidden_layers".into(), json!(1))));
    says(&less.error(), &["9 tensors", "model.layers.1."]);
    // Biases that the configuration does not mention would be left out of the sums.
    let biases =
        Copy::of("tiny-llama3").config(|c| drop(c.insert("attention_bias".into(), json!(false))));
    says(&biases.error(), &["self_attn.q_proj.bias"]);
}

#[test]
fn stored_rotary_frequencies_are_harmless() {
    let copy = Copy::of("tiny-llama").tensors(|tensors| {
        tensors.push(Stored {
            name: "model.layers.0.self_attn.rotary_emb.inv_freq".into(),
            dtype: Dtype::F32,
            shape: vec![4],
            data: vec![0; 16],
        });
    });
    load(&copy.open());
}

#[test]
fn a_tied_head_may_be_stored_again_but_not_another() {
    for (name, embedding) in [
        ("tiny-llama3", "model.embed_tokens.weight"),
        ("tiny-gemma2", "model.embed_tokens.weight"),
        ("tiny-gpt2", "transformer.wte.weight"),
    ] {
        let with_head = |change: u8| {
            Copy::of(name).tensors(|tensors| {
                let stored = tensors.iter().find(|t| t.name == embedding).unwrap();
                let mut data = stored.data.clone();
                data[100] ^= change;
                let (dtype, shape) = (stored.dtype, stored.shape.clone());
                let name = "lm_head.weight".into();
                tensors.push(Stored {
                    name,
                    dtype,
                    shape,
                    data,
                });
            })
        };
        assert!(load(&with_head(0).open()).tied_head());
        let message = with_head(1).error();
        says(
            &message,
            &["lm_head.weight", embedding, "tie_word_embeddings"],
        );
        // What the message advises.
        let untied =
            with_head(1).config(|c| drop(c.insert("tie_word_embeddings".into(), json!(false))));
        assert!(!load(&untied.open()).tied_head());
    }
}

#[test]
fn quantised_weights_and_other_types_are_named() {
    let copy = Copy::of("tiny-llama").config(|c| {
        drop(c.insert(
            "quantization_config".into(),
            json!({"quant_method": "gptq"}),
        ))
    });
    says(&copy.error(), &["quantised", "gptq"]);
    let copy = Copy::of("tiny-qwen2").tensors(|tensors| {
        let weight = tensors
            .iter_mut()
            .find(|t| t.name.ends_with("o_proj.weight"))
            .unwrap();
        weight.dtype = Dtype::I32;
    });
    says(&copy.error(), &["o_proj.weight", "I32"]);
}

#[test]
fn packed_weights_are_named_where_only_their_tensors_show_it() {
    let copy = Copy::of("tiny-llama").tensors(|tensors| {
        let weight = tensors
            .iter_mut()
            .find(|t| t.name.ends_with("o_proj.weight"))
            .unwrap();
        weight.name = weight.name.replace("o_proj.weight", "o_proj.qweight");
    });
    says(&copy.error(), &["quantised", "o_proj.qweight"]);
}

#[test]
fn a_window_that_is_not_mentioned_is_the_familys_own() {
    let window = |change: fn(&mut serde_json::Map<String, serde_json::Value>)| {
        let copy = Copy::of("tiny-mistral").config(change);
        load(&copy.open()).config().layers[0].window
    };
    // As MistralConfig of transformers has it.
    assert_eq!(window(|c| drop(c.remove("sliding_window"))), Some(4096));
    assert_eq!(window(|c| c["sliding_window"] = json!(null)), None);
    assert_eq!(window(|c| c["sliding_window"] = json!(7)), Some(7));
}

#[test]
fn tokenizer_files_that_mean_nothing_are_errors_with_a_reason() {
    let read = |file: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let copy = Copy::of("tiny-llama");
        let path = copy.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
        let mut json = serde_json::from_str(&text).unwrap();
        change(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        let error = Tokenizer::from_dir(copy.path()).unwrap_err();
        error.to_string()
    };
    let newer = read("tokenizer.json", &|json| {
        json["model"]["type"] = json!("Quantum");
    });
    says(&newer, &["tokenizer.json", "newer"]);
    says(
        &read("tokenizer_config.json", &|json| *json = json!([])),
        &["an object"],
    );
    // A mark of the encoding is none of these.
    let copy = Copy::of("tiny-llama");
    for file in ["config.json", "tokenizer_config.json"] {
        let path = copy.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("\u{feff}{text}")).unwrap();
    }
    Tokenizer::from_dir(copy.path()).unwrap();
    for id in [json!("</s>"), json!(-1), json!([1, "x"])] {
        let message = read("config.json", &|json| json["eos_token_id"] = id.clone());
        says(&message, &["config.json", "eos_token_id"]);
    }
}

#[test]
fn options_that_would_change_results_are_refused_by_name() {
    let set = |name: &str, field: &str, value: serde_json::Value| {
        let copy = Copy::of(name).config(|c| drop(c.insert(field.into(), value)));
        copy.error()
    };
    let rope = |value| set("tiny-llama", "rope_parameters", value);
    says(
        &rope(json!({"rope_type": "spiral"})),
        &["spiral", "llama3", "yarn", "longrope"],
    );
    says(&rope(json!({"rope_type": "yarn"})), &["factor"]);
    says(
        &rope(json!({"rope_type": "linear", "factor": -1})),
        &["factor", "-1"],
    );
    says(
        &rope(json!({"partial_rotary_factor": 0.4})),
        &["partial_rotary_factor", "0.4", "whole heads"],
    );
    let message = set(
        "tiny-phi3",
        "rope_parameters",
        json!({"partial_rotary_factor": 0.5}),
    );
    says(&message, &["partial_rotary_factor", "an even number"]);
    // What would divide by zero, or be passed over.
    for settings in [json!([1]), json!("linear")] {
        says(&rope(settings), &["rope_parameters", "an object is needed"]);
    }
    for theta in [1e-300, 1.0] {
        says(
            &rope(json!({"rope_theta": theta})),
            &["rope_theta", "more than 1"],
        );
    }
    let equal = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0});
    says(&rope(equal), &["high_freq_factor", "low_freq_factor"]);
    let original = "original_max_position_embeddings";
    says(
        &set("tiny-phi3-longrope", original, json!(1)),
        &[original, "more than 1"],
    );
    // Refused before tables of that size are made.
    for name in ["tiny-llama", "tiny-gemma2", "tiny-qwen3"] {
        let message = set(name, "head_dim", json!(2_147_483_646));
        says(&message, &["head_dim", "2147483646", "65536"]);
    }
    for value in [json!(-1), json!("x")] {
        let message = set("tiny-qwen2-window", "max_window_layers", value);
        says(&message, &["max_window_layers"]);
    }
    says(
        &set("tiny-llama", "hidden_act", json!("mish")),
        &["mish", "silu", "gelu_new"],
    );
    says(
        &set("tiny-llama", "num_hidden_layers", json!(20_000)),
        &["20000", "10000"],
    );
    says(
        &set("tiny-phi", "num_attention_heads", json!(96)),
        &["hidden_size", "96"],
    );
    says(
        &set("tiny-phi", "qk_layernorm", json!(true)),
        &["qk_layernorm"],
    );
    says(
        &set("tiny-gpt2", "scale_attn_by_inverse_layer_idx", json!(true)),
        &["scale_attn_by_inverse_layer_idx"],
    );
    let message = set("tiny-gemma2", "use_bidirectional_attention", json!(true));
    says(&message, &["use_bidirectional_attention"]);
    says(
        &set("tiny-gemma2", "layer_types", json!(["full_attention"])),
        &["layer_types", "1", "2"],
    );
    let message = set(
        "tiny-gemma2",
        "layer_types",
        json!(["full_attention", "linear_attention"]),
    );
    says(&message, &["linear_attention"]);
    let message = set(
        "tiny-phi3-longrope",
        "rope_parameters",
        json!({
            "rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [1.0, 2.0, 3.0],
        }),
    );
    says(&message, &["short_factor", "2", "3"]);
    says(
        &set("tiny-mixtral", "num_experts_per_tok", json!(5)),
        &["num_experts_per_tok", "5", "4"],
    );
    says(
        &set("tiny-qwen3-moe", "mlp_only_layers", json!([-1])),
        &["mlp_only_layers"],
    );
    let copy = Copy::of("tiny-llama3").config(|c| {
        drop(
            c["rope_parameters"]
                .as_object_mut()
                .unwrap()
                .remove("factor"),
        )
    });
    says(&copy.error(), &["factor"]);
}

#[test]
fn a_tokenizer_of_another_model_is_noticed_before_the_first_pass() {
    let copy = Copy::of("tiny-llama");
    let file = copy.path().join("tokenizer.json");
    let mut own: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    own["model"]["vocab"]["w500"] = json!(97);
    std::fs::write(&file, own.to_string()).unwrap();
    let tokenizer = Tokenizer::from_dir(copy.path()).unwrap();
    let model = model("tiny-llama");
    let collect = |texts: &[&str]| {
        let options = CollectOptions::default();
        collect_norms(&model, &tokenizer, texts, &options, |_, _| {
            std::ops::ControlFlow::Continue(())
        })
    };
    // Some tokenizers of real models have tokens to spare.
    collect(&["w5 w6"]).unwrap();
    let message = collect(&["w5 w6", "w7 w500"]).unwrap_err().to_string();
    says(&message, &["text 1", "w500", "97", "98"]);
}

#[test]
fn a_text_beyond_the_learned_positions_is_an_error() {
    let model = model("tiny-gpt2");
    let forward = |tokens: usize, cache: Option<&mut KvCache>| {
        let batch = Batch::new(&[vec![5; tokens]]).unwrap();
        model.forward(&batch, cache, LogitsToKeep::Last)
    };
    forward(40, None).unwrap();
    says(&forward(41, None).unwrap_err().to_string(), &["41", "40"]);
    let mut cache = KvCache::new(&model, 1, 50).unwrap();
    forward(40, Some(&mut cache)).unwrap();
    says(
        &forward(1, Some(&mut cache)).unwrap_err().to_string(),
        &["41", "40"],
    );
    assert_eq!(cache.len(0), 40);
}

#[test]
fn tokens_beyond_the_vocabulary_are_named() {
    let model = model("tiny-llama");
    let batch = Batch::new(&[[3u32, 97]]).unwrap();
    let error = model.forward(&batch, None, LogitsToKeep::Last).unwrap_err();
    says(&error.to_string(), &["97"]);
}

#[test]
fn batches_that_make_no_sense_are_refused() {
    assert!(Batch::new::<Vec<u32>>(&[]).is_err());
    let error = Batch::new(&[vec![1u32], vec![]]).unwrap_err();
    says(&error.to_string(), &["text 1"]);
    assert!(Batch::from_padded(&[1, 2, 3], &[1, 1, 1], 2).is_err());
    assert!(Batch::from_padded(&[1, 2, 3, 4], &[1, 1, 1], 2).is_err());
    assert!(Batch::from_padded(&[1, 2, 3, 4], &[1, 1, 0, 0], 2).is_err());
    assert!(
        Batch::new(&[[1u32], [2]])
            .unwrap()
            .with_slots(&[0])
            .is_err()
    );
    assert!(
        Batch::new(&[[1u32], [2]])
            .unwrap()
            .with_slots(&[1, 1])
            .is_err()
    );
    let batch = Batch::new(&[[3u32]]).unwrap();
    let error = model("tiny-llama").forward(&batch, None, LogitsToKeep::At(vec![1]));
    says(&error.unwrap_err().to_string(), &["token 1"]);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let options = LoadOptions::default().with_device_map(Device::Cuda(99).into());
    let error = Model::load(&checkpoint("tiny-llama"), &options).unwrap_err();
    says(&error.to_string(), &["cuda:99"]);
    let placement = "cpu,cuda:99".parse().unwrap();
    let options = LoadOptions::default().with_device_map(placement);
    let error = Model::load(&checkpoint("tiny-llama"), &options).unwrap_err();
    says(&error.to_string(), &["cuda:99"]);
}

#[test]
fn limits_of_devices_that_are_too_low_are_an_error_with_the_bytes() {
    let checkpoint = checkpoint("tiny-llama");
    // Every tensor of it is in bf16, and none is left out.
    let bytes = checkpoint.total_bytes();
    let options = LoadOptions::default().with_device_map("cpu=1000".parse().unwrap());
    let error = Model::load(&checkpoint, &options).unwrap_err();
    says(&error.to_string(), &["cpu=1000", "the embedding"]);
    let limit = format!("cpu={}", bytes - 1000);
    let options = LoadOptions::default().with_device_map(limit.parse().unwrap());
    let error = Model::load(&checkpoint, &options).unwrap_err();
    says(&error.to_string(), &["there is no room for part 3 of 3"]);
    let limit = format!("cpu={bytes}");
    let options = LoadOptions::default().with_device_map(limit.parse().unwrap());
    Model::load(&checkpoint, &options).unwrap();
}

#[test]
fn a_missing_or_broken_tokenizer_is_an_error_with_its_path() {
    let copy = Copy::of("tiny-llama");
    let file = copy.path().join("tokenizer.json");
    std::fs::write(&file, "{\"version\": \"9\"}").unwrap();
    let broken = Tokenizer::from_dir(copy.path()).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    let missing = Tokenizer::from_dir(copy.path()).unwrap_err().to_string();
    for message in [broken, missing] {
        says(&message, &["tokenizer.json"]);
    }
}

#[cfg(unix)]
#[test]
fn a_tokenizer_file_that_is_a_link_to_nowhere_is_not_left_out() {
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        let copy = Copy::of("tiny-llama");
        let file = copy.path().join(name);
        let _ = std::fs::remove_file(&file);
        std::os::unix::fs::symlink("../../blobs/gone", &file).unwrap();
        let message = Tokenizer::from_dir(copy.path()).unwrap_err().to_string();
        says(&message, &[name, "../../blobs/gone", "leads nowhere"]);
    }
}

#[test]
fn parameters_are_replaced_by_name_and_shape() {
    let source = checkpoint("tiny-llama");
    let mut model = load(&source);
    let batch = Batch::new(&Golden::of("tiny-llama").texts()).unwrap();
    let before = logits(&model, &batch);
    let name = "model.layers.1.mlp.down_proj.weight";
    let view = source.tensor(name).unwrap();
    let zeros = vec![0; view.bytes().len()];
    model
        .set_parameter(name, &view.with_bytes(&zeros).unwrap())
        .unwrap();
    assert_ne!(logits(&model, &batch), before);
    model.set_parameter(name, &view).unwrap();
    assert_eq!(logits(&model, &batch), before);

    let error = model.set_parameter("model.layers.1.mlp.up_proj.weight", &view);
    says(&error.unwrap_err().to_string(), &["[48, 80]", "[80, 48]"]);
    let error = model.set_parameter("model.layers.7.mlp.up_proj.weight", &view);
    says(&error.unwrap_err().to_string(), &["model.layers.7"]);
}

#[test]
fn experts_in_one_tensor_are_named_as_such() {
    let copy = Copy::of("tiny-qwen3-moe").tensors(|tensors| {
        let expert = |tensor: &Stored| tensor.name.contains(".experts.0.up_proj");
        let mut fused = tensors
            .iter()
            .find(|tensor| expert(tensor))
            .unwrap()
            .clone();
        tensors.retain(|tensor| !tensor.name.contains(".experts."));
        let (block, _) = fused.name.split_once(".experts.").unwrap();
        fused.name = format!("{block}.experts.gate_up_proj");
        fused.shape.insert(0, 1);
        tensors.push(fused);
    });
    says(
        &copy.error(),
        &[
            "mlp.experts.gate_up_proj [1, ",
            "all experts of a layer in one tensor",
        ],
    );
}
