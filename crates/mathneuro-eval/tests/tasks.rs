//! Tasks as data: what the built-in ones ask, and what is said of bad task files and bad documents.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::path::Path;

use mathneuro_data::{Row, rows_from_values};
use mathneuro_eval::{ChatTemplate, EvalError, Task, TaskDefinition, TaskOptions};
use serde_json::{Value, json};

fn rows(documents: Vec<Value>) -> Vec<Row> {
    rows_from_values(Path::new("rows"), documents).unwrap()
}

fn task(name: &str, documents: Vec<Value>) -> Task {
    TaskDefinition::builtin(name)
        .unwrap()
        .task(&rows(documents))
        .unwrap()
}

fn prompts(task: &Task) -> Vec<Vec<String>> {
    task.prompts(&TaskOptions::default()).unwrap()
}

#[test]
fn every_task_file_of_the_crate_can_be_read() {
    for name in TaskDefinition::names() {
        let definition = TaskDefinition::builtin(name).unwrap();
        assert_eq!(definition.name(), name);
    }
    assert_eq!(TaskDefinition::builtin("gsm8k_cot").unwrap().version(), 3);
    assert_eq!(TaskDefinition::builtin("race").unwrap().version(), 3);
    let error = TaskDefinition::builtin("gsm9k").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`gsm9k` is unknown; there are: arc_challenge"),
        "{error}"
    );
}

#[test]
fn prompts_as_the_harness_writes_them() {
    // Worked out with the templates and functions of lm-evaluation-harness 0.4.13.
    for (name, document, expected) in [
        (
            "hellaswag",
            json!({"activity_label": "Baking", "ctx_a": "A man [header] mixes.", "ctx_b": "HE", "label": "1",
                   "endings": ["a", "b [step]", "c", "d"]}),
            vec!["Baking: A man mixes. He"],
        ),
        (
            "hellaswag",
            json!({"activity_label": "Bake", "ctx_a": "How to [title] Mix", "ctx_b": "", "label": 0,
                   "endings": ["a", "b", "c", "d"]}),
            vec!["Bake: How to. Mix"],
        ),
        (
            "arc_easy",
            json!({"question": "Which?", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": "3"}),
            vec!["Question: Which?\nAnswer:"],
        ),
        (
            "piqa",
            json!({"goal": "Open a jar", "sol1": "Twist", "sol2": "Shout", "label": 0}),
            vec!["Question: Open a jar\nAnswer:"],
        ),
        (
            "winogrande",
            json!({"sentence": "Ann thanked Eve because _ had helped.", "option1": "Ann", "option2": "Eve", "answer": "2"}),
            vec!["Ann thanked Eve because Ann", "Ann thanked Eve because Eve"],
        ),
        (
            "race",
            json!({"article": "Text.", "problems": "[{'question': 'It is  _  .', 'options': ['x', 'y', 'z', 'w'], 'answer': 'B'}, {'question': 'Who?', 'options': [\"it's\", 'b', 'c', 'd'], 'answer': 'A'}]"}),
            vec!["Article: Text.\n\nIt is y\nWho?"],
        ),
        (
            "race",
            json!({"article": "Text.", "questions": ["Why?", "Who?"], "options": [["x", "y"], ["p", "q"]], "answers": ["B", "A"]}),
            vec!["Article: Text.\n\nQuestion: Why?\nAnswer: y\nWho?"],
        ),
        (
            "mmlu",
            json!({"question": " Which? ", "subject": "high_school_physics", "choices": ["a", "b", "c", "d"], "answer": 3}),
            vec![
                "The following are multiple choice questions (with answers) about high school physics.\n\nWhich?\nA. a\nB. b\nC. c\nD. d\nAnswer:",
            ],
        ),
    ] {
        let task = task(name, vec![document]);
        assert_eq!(prompts(&task), [expected], "{name}");
    }
    let math = task(
        "minerva_math",
        vec![json!({"problem": "1+1?", "solution": "It is $\\boxed{2}$."})],
    );
    let prompt = &prompts(&math)[0][0];
    assert!(prompt.starts_with("Problem:\nFind the domain of the expression  $\\frac{\\sqrt{x-2}}{\\sqrt{5-x}}$.\n\nSolution: The expressions"), "{prompt}");
    assert!(
        prompt
            .ends_with("is $-\\frac{2}{3}$. I hope it is correct.\n\nProblem:\n1+1?\n\nSolution:"),
        "{prompt}"
    );
}

#[test]
fn exemplars_are_drawn_as_the_harness_draws_them() {
    let dir = tempfile::tempdir().unwrap();
    let train = dir.path().join("train.jsonl");
    let lines: Vec<String> = (0..4000)
        .map(|n| json!({"question": format!("q{n}"), "answer": format!("a{n}")}).to_string())
        .collect();
    std::fs::write(&train, lines.join("\n")).unwrap();
    let documents = (0..2).map(|n| json!({"question": format!("Q{n}?"), "answer": "#### 1"}));
    let task = TaskDefinition::builtin("gsm8k")
        .unwrap()
        .with_exemplar_file(&train)
        .task(&rows(documents.collect()))
        .unwrap();
    // CPython: r = random.Random(1234); r.sample(range(4000), 5) twice.
    let drawn: [[usize; 5]; 2] = [[3958, 3187, 1805, 478, 30], [371, 3731, 3860, 3847, 3305]];
    for (place, drawn) in drawn.iter().enumerate() {
        let shots: String = drawn
            .iter()
            .map(|n| format!("Question: q{n}\nAnswer: a{n}\n\n"))
            .collect();
        let expected = format!("{shots}Question: Q{place}?\nAnswer:");
        assert_eq!(prompts(&task)[place].concat(), expected);
        assert_eq!(
            prompts(&task.subset(&[place]))[0],
            [expected],
            "a subset keeps its exemplars"
        );
    }
}

#[test]
fn exemplars_of_the_own_subject_and_never_the_question_itself() {
    let question = |n: usize, subject: &str| json!({"question": format!("q{n}"), "subject": subject, "choices": ["a", "b", "c", "d"], "answer": n % 4});
    let documents: Vec<Value> = (0..12)
        .map(|n| question(n, if n % 2 == 0 { "x" } else { "y" }))
        .collect();
    let found = prompts(&task("mmlu_5shot", documents.clone()));
    let asked = |prompt: &str| -> Vec<String> {
        let lines = prompt.lines().filter(|line| line.starts_with('q'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(asked(&found[0][0]), ["q2", "q4", "q6", "q8", "q10", "q0"]);
    assert_eq!(asked(&found[11][0]), ["q1", "q3", "q5", "q7", "q9", "q11"]);
    assert!(
        found[0][0].contains("q2\nA. a\nB. b\nC. c\nD. d\nAnswer: C\n\nq4"),
        "{}",
        found[0][0]
    );
    let few = TaskDefinition::builtin("mmlu_5shot")
        .unwrap()
        .task(&rows(documents[..3].to_vec()));
    let error = few.unwrap_err().to_string();
    assert!(
        error.contains("5 exemplars are needed, 1 are there for x"),
        "{error}"
    );
}

#[test]
fn arithmetic_is_generated_by_seed() {
    let definition = TaskDefinition::builtin("arithmetic").unwrap();
    let first = definition.generate(3).unwrap();
    assert_eq!(first.len(), 4 * 3 * 50);
    assert_eq!(prompts(&first), prompts(&definition.generate(3).unwrap()));
    assert_ne!(prompts(&first), prompts(&definition.generate(4).unwrap()));
    for prompt in prompts(&first).iter().flatten() {
        assert!(
            prompt.starts_with("Question: What is ") && prompt.ends_with("?\nAnswer:"),
            "{prompt}"
        );
    }
    let error = TaskDefinition::builtin("piqa")
        .unwrap()
        .generate(0)
        .unwrap_err();
    assert!(error.to_string().contains("no table `generate`"), "{error}");
}

const OWN: &str = r#"
name = "capitals"
version = 1
kind = "choices"
prompt = "The capital of {{ country }} is"
choices = "cities"
choice_count = 4
target = "{{ answer }}"
metrics = ["acc", "acc_norm"]
"#;

#[test]
fn a_task_of_ones_own_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (
        dir.path().join("capitals.toml"),
        dir.path().join("capitals.csv"),
    );
    std::fs::write(&file, OWN).unwrap();
    std::fs::write(&data, "country,cities,answer\nPeru,\"[\"\"Lima\"\",\"\"Cusco\"\",\"\"Ica\"\",\"\"Puno\"\"]\",Lima\n").unwrap();
    let task = Task::from_file(&file, &data).unwrap();
    assert_eq!(
        (task.name(), task.version(), task.len()),
        ("capitals", 1, 1)
    );
    assert_eq!(prompts(&task), [["The capital of Peru is"]]);
}

#[test]
fn lists_in_csv_cells_are_read_where_there_are_choices() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.csv");
    let read = |definition: &TaskDefinition, text: &str| {
        std::fs::write(&data, text).unwrap();
        definition.read(&data)
    };
    let own = TaskDefinition::from_toml("own.toml", OWN).unwrap();
    let cities = |cell: &str| format!("country,cities,answer\nPeru,\"{cell}\",Lima\n");
    // As Python prints a tuple; the answer is one of the four.
    read(&own, &cities("('Lima', 'Cusco', 'Ica', 'Puno')")).unwrap();
    let error = read(&own, &cities("Lima, Cusco, Ica, Puno")).unwrap_err();
    assert!(error.to_string().contains("a list is needed"), "{error}");
    let mmlu = TaskDefinition::builtin("mmlu").unwrap();
    let row = "question,subject,choices,answer\nCapital?,a,\"Lima, Cusco\",A\n";
    let error = read(&mmlu, row).unwrap_err().to_string();
    assert!(error.contains("`choices`"), "{error}");

    let point = "name = \"point\"\nversion = 1\nkind = \"generate\"\nprompt = \"{{ question }}\"\ntarget = \"{{ answer }}\"\n[[filters]]\nname = \"whole\"\nkind = \"whole\"\n";
    let point = TaskDefinition::from_toml("point.toml", point).unwrap();
    let task = read(&point, "question,answer\n\"(1, 2)\",(2)\n").unwrap();
    assert_eq!(prompts(&task), [["(1, 2)"]]);
}

#[test]
fn a_bad_task_file_is_named_with_what_is_wrong() {
    for (from, to, expected) in [
        ("version = 1\n", "", "missing field `version`"),
        ("prompt = ", "promt = ", "unknown field `promt`"),
        (
            "kind = \"choices\"",
            "kind = \"chioces\"",
            "the kind `chioces` is unknown; there are: generate, choices",
        ),
        (
            "\"acc_norm\"",
            "\"f1\"",
            "the metric `f1` is unknown; there are: acc, acc_norm, acc_bytes",
        ),
        ("{{ country }}", "{{ country", "the template of `prompt`"),
        ("choices = \"cities\"\n", "", "needs the field `choices`"),
        (
            "prompt = \"The capital of {{ country }} is\"\n",
            "",
            "needs the field `prompt`",
        ),
        (
            "metrics = [\"acc\", \"acc_norm\"]",
            "[[filters]]\nname = \"a\"\nkind = \"regexp\"",
            "the filter `regexp` is unknown; there are: whole, regex",
        ),
        (
            "metrics = [\"acc\", \"acc_norm\"]",
            "[[filters]]\nname = \"a\"\nkind = \"regex\"\npattern = \"(\"",
            "the pattern `(`",
        ),
        (
            "metrics = [\"acc\", \"acc_norm\"]",
            "[fewshot]\nsampler = \"last\"",
            "the sampler `last` is unknown; there are: first, random",
        ),
        ("name = \"capitals\"", "name = ", "own.toml"),
    ] {
        assert!(OWN.contains(from), "{from}");
        let error = TaskDefinition::from_toml("own.toml", &OWN.replace(from, to)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(expected) && error.contains("own.toml"),
            "{from}: {error}"
        );
    }
    let error = TaskDefinition::from_file("nowhere.toml".as_ref())
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot read nowhere.toml"), "{error}");
}

#[test]
fn a_bad_document_is_named_or_skipped_and_counted() {
    let own = TaskDefinition::from_toml("own.toml", OWN).unwrap();
    let good = json!({"country": "Peru", "cities": ["Lima", "Cusco", "Ica", "Puno"], "answer": 0});
    for (column, value, expected) in [
        (
            "country",
            None,
            "rows, line 2: column `country` is not there; there are: cities, answer",
        ),
        ("answer", None, "column `answer` is not there"),
        ("answer", Some(Value::Null), "a value is null"),
        (
            "answer",
            Some(json!("Quito")),
            "answer `Quito` is not one of the 4 choices",
        ),
        (
            "answer",
            Some(json!(4)),
            "answer `4` is not one of the 4 choices",
        ),
        (
            "cities",
            Some(json!(["a", "b", "c", "d", "e"])),
            "rows, line 2: 5 choices; task capitals declares 4",
        ),
        ("cities", Some(json!("Lima")), "a list is needed"),
        (
            "cities",
            Some(json!(["a", "", "c", "d"])),
            "choice 1 is empty",
        ),
    ] {
        let mut bad = good.clone();
        match value {
            Some(value) => bad[column] = value,
            None => drop(bad.as_object_mut().unwrap().shift_remove(column)),
        }
        let documents = rows(vec![good.clone(), bad.clone()]);
        let error = own.task(&documents).unwrap_err().to_string();
        assert!(error.contains(expected), "{column}: {error}");
        let skipping = own.clone().with_bad_documents_skipped(true);
        assert_eq!(skipping.task(&documents).unwrap().len(), 1);
        let error = skipping.task(&rows(vec![bad])).unwrap_err();
        assert!(matches!(error, EvalError::NoDocuments(_)), "{error}");
    }
    let five =
        json!({"question": "q", "subject": "s", "choices": ["a", "b", "c", "d", "e"], "answer": 4});
    let error = TaskDefinition::builtin("mmlu")
        .unwrap()
        .task(&rows(vec![five]))
        .unwrap_err();
    assert!(
        matches!(
            error,
            EvalError::ChoiceCount {
                found: 5,
                expected: 4,
                ..
            }
        ),
        "{error}"
    );
    let empty = TaskDefinition::builtin("gsm8k_cot")
        .unwrap()
        .task(&rows(vec![
            json!({"question": "2 + 2?", "answer": "#### "}),
        ]));
    assert!(
        empty
            .unwrap_err()
            .to_string()
            .contains("the answer of task gsm8k_cot is empty")
    );
    let unboxed = TaskDefinition::builtin("minerva_math")
        .unwrap()
        .task(&rows(vec![json!({"problem": "1+1?", "solution": "2"})]));
    assert!(
        unboxed
            .unwrap_err()
            .to_string()
            .contains("there is no \\boxed{} in it")
    );
    assert!(matches!(own.task(&[]), Err(EvalError::NoDocuments(_))));
}

#[test]
fn prompts_as_turns_of_a_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let template = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let config = json!({"bos_token": {"content": "<s>"}, "chat_template": [{"name": "default", "template": template}]});
    let write = |config: &Value| {
        std::fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        ChatTemplate::from_dir(dir.path())
    };
    let chat = write(&config).unwrap();
    let own = OWN.to_owned()
        + "description = \"\"\"Geography.\"\"\"\n[fewshot]\ncount = 1\nsamples = [{ country = \"Chile\", cities = [\"a\", \"b\", \"c\", \"Santiago\"], answer = 3 }]";
    let document =
        json!({"country": "Peru", "cities": ["Lima", "Cusco", "Ica", "Puno"], "answer": 0});
    let task = TaskDefinition::from_toml("own", &own)
        .unwrap()
        .task(&rows(vec![document]))
        .unwrap();
    let ask = |options: &TaskOptions| task.prompts(options).unwrap().remove(0).remove(0);
    let plain = TaskOptions::default();
    let shots = "The capital of Chile is Santiago\n\nThe capital of Peru is";
    assert_eq!(ask(&plain), format!("Geography.{shots}"));
    assert_eq!(
        ask(&plain.clone().with_system_prompt("Be brief.")),
        format!("Be brief.\n\nGeography.{shots}")
    );
    let chatting = plain.with_chat(chat);
    assert_eq!(
        ask(&chatting),
        format!("<s><system>Geography.</system><user>{shots}</user><assistant>")
    );
    let turns = chatting
        .with_system_prompt("Be brief.")
        .with_fewshot_as_multiturn(true);
    assert_eq!(
        ask(&turns),
        "<s><system>Be brief.\n\nGeography.</system><user>The capital of Chile is</user><assistant>Santiago</assistant><user>The capital of Peru is</user><assistant>"
    );

    let mut without = config.clone();
    without.as_object_mut().unwrap().shift_remove("bos_token");
    let chat = write(&without).unwrap();
    let error = task
        .prompts(&TaskOptions::default().with_chat(chat))
        .unwrap_err();
    assert!(
        error.to_string().contains("it writes `bos_token`"),
        "{error}"
    );
    let error = write(&json!({})).unwrap_err();
    assert!(matches!(error, EvalError::NoChatTemplate(_)), "{error}");
}

#[test]
fn a_task_name_cannot_lead_out_of_the_output_folder() {
    for name in ["../../evil", "a/b", "a\\\\b", "..", ""] {
        let text =
            format!("name = \"{name}\"\nversion = 1\nkind = \"perplexity\"\ntarget = \"x\"\n");
        let error = TaskDefinition::from_toml("t.toml", &text).unwrap_err();
        assert!(error.to_string().contains("the name `"), "{name}: {error}");
    }
}

/// The task files that docs/tasks.md shows.
fn documented() -> Vec<TaskDefinition> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let texts = blocks.map(|block| block.split("```").next().unwrap());
    texts
        .map(|text| TaskDefinition::from_toml("docs", text).unwrap())
        .collect()
}

#[test]
fn the_tasks_of_the_documentation_can_be_asked() {
    let [capitals, units, exam] = documented().try_into().unwrap();
    let asked = |definition: &TaskDefinition, documents| {
        let task = definition.task(&rows(documents)).unwrap();
        prompts(&task).concat()
    };
    let peru =
        json!({"country": "Peru", "cities": ["Lima", "Cusco", "Ica", "Puno"], "answer": "Lima"});
    assert_eq!(asked(&capitals, vec![peru]), ["The capital of Peru is"]);
    let metres = json!({"question": "How many cm are 3 m?", "answer": "300"});
    assert_eq!(
        asked(&units, vec![metres]),
        ["Q: How many cm are 2 m?\nA: The answer is 200.\n\nQ: How many cm are 3 m?\nA:"]
    );
    // The subject of its exemplars and of its results is a column that the task file adds.
    let question = |topic: &str, n: usize| json!({"topic": topic, "question": format!("{topic} {n}?"), "choices": ["yes", "no"], "answer": "A"});
    let documents: Vec<Value> = (0..4)
        .flat_map(|n| [question("Physics", n), question("Art", n)])
        .collect();
    let found = asked(&exam, documents);
    assert_eq!(found.len(), 8);
    for (index, prompt) in found.iter().enumerate() {
        let (subject, other) = match index % 2 {
            0 => ("Physics", "Art"),
            _ => ("Art", "Physics"),
        };
        let head = format!("Questions about {}.\n\n", subject.to_lowercase());
        assert!(prompt.starts_with(&head), "{prompt}");
        assert_eq!(
            prompt.matches(&format!("{subject} ")).count(),
            4,
            "{prompt}"
        );
        assert!(!prompt.contains(&format!("{other} ")), "{prompt}");
    }
}
