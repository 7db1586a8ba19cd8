//! The table of pages, in the order of `portcullis --help`.

use super::{Entries, Page};

const USAGE: (&str, &str) = ("2", "usage, or a configuration or a file that can not be used");
const INTERNAL: (&str, &str) = ("70", "something that should work did not");
const STORE: (&str, &str) = ("70", "the store is unavailable, or of another version");

/// Those of a command that only reads or writes what is there.
const OF_STORE: Entries = &[("0", "done"), USAGE, STORE];

pub(super) const PAGES: &[Page] = &[
    Page {
        command: "",
        examples: &[
            ("try it: the whole system on loopback, with a real node", "portcullis dev"),
            ("what is wrong with a configuration", "portcullis check --config portcullis.toml"),
            ("run it", "portcullis serve --config portcullis.toml"),
            ("more of one command", "portcullis store import --help"),
        ],
        sections: &[
            (
                "Exit codes",
                &[
                    ("0", "fine"),
                    ("1", "a check failed: check, explain, journal, store import"),
                    USAGE,
                    INTERNAL,
                ],
            ),
            (
                "Environment",
                &[
                    ("PORTCULLIS__SECTION__KEY", "overrides section.key of the configuration"),
                    ("CREDENTIALS_DIRECTORY", "looked in first for secrets with a relative path"),
                ],
            ),
        ],
    },
    Page {
        command: "serve",
        examples: &[
            ("as a service", "portcullis serve --config /etc/portcullis/portcullis.toml"),
            (
                "by hand, with log lines for people",
                "portcullis serve --config portcullis.toml --log-format text",
            ),
            (
                "with another value of one key",
                "PORTCULLIS__LOG__LEVEL=debug portcullis serve --config portcullis.toml",
            ),
        ],
        sections: &[
            (
                "Signals",
                &[
                    (
                        "SIGHUP",
                        "reads configuration and secrets again; with a mistake nothing changes",
                    ),
                    (
                        "SIGTERM",
                        "fails /readyz, waits server.drain_delay, finishes what is in flight, ends",
                    ),
                    ("SIGINT", "the same; a second SIGTERM or SIGINT ends it at once"),
                ],
            ),
            (
                "Exit codes",
                &[
                    ("0", "a signal stopped it"),
                    ("2", "a configuration, a secret, a store or an address that can not be used"),
                ],
            ),
        ],
    },
    Page {
        command: "check",
        examples: &[
            ("before a start or a reload", "portcullis check --config portcullis.toml"),
            (
                "and are these the right node and the right chain?",
                "portcullis check --config portcullis.toml --live",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[
                ("0", "all is well"),
                ("1", "something is wrong, and all of it was named"),
                ("2", "usage"),
                INTERNAL,
            ],
        )],
    },
    Page {
        command: "dev",
        examples: &[
            ("all of it, until Ctrl-C", "portcullis dev"),
            ("another chain, other keys, another store", "portcullis dev --fresh"),
            (
                "where port 8080 is taken",
                "PORTCULLIS__GATEWAY__LISTEN=127.0.0.1:9080 portcullis dev",
            ),
            ("on a node that runs already", "portcullis dev --node http://127.0.0.1:5050/rpc"),
            (
                "only the contracts and a configuration for serve",
                "portcullis dev --node http://127.0.0.1:5050/rpc --state net --prepare",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[
                ("0", "a signal stopped it"),
                ("2", "usage, or an address that is taken"),
                ("70", "the node, the network or the folder can not be used"),
            ],
        )],
    },
    Page {
        command: "explain",
        examples: &[
            ("a read, at the gateway", "portcullis explain --config portcullis.toml request.json"),
            (
                "the same, from standard input",
                r#"echo '{"jsonrpc":"2.0","id":1,"method":"starknet_chainId"}' |
  portcullis explain --config portcullis.toml"#,
            ),
            (
                "a user's transaction, at the relay",
                "portcullis explain --config portcullis.toml --relay /rpc transaction.json",
            ),
            (
                "an operation",
                "portcullis explain --config portcullis.toml --relay /mint-card mint.json",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[("0", "it would be permitted"), ("1", "it would be refused"), USAGE],
        )],
    },
    Page {
        command: "journal",
        examples: &[
            (
                "what was written lately",
                "portcullis journal --config portcullis.toml list --last 20",
            ),
            (
                "was anything changed afterwards?",
                "portcullis journal --config portcullis.toml verify",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[
                ("0", "done"),
                ("1", "verify: an entry was changed or is missing; show: there is no such intent"),
                USAGE,
                STORE,
            ],
        )],
    },
    Page {
        command: "journal list",
        examples: &[(
            "the newest twenty",
            "portcullis journal --config portcullis.toml list --last 20",
        )],
        sections: &[("Exit codes", OF_STORE)],
    },
    Page {
        command: "journal show",
        examples: &[(
            "an intent, by the number that list shows",
            "portcullis journal --config portcullis.toml show 17",
        )],
        sections: &[(
            "Exit codes",
            &[("0", "done"), ("1", "there is no such intent"), USAGE, STORE],
        )],
    },
    Page {
        command: "journal verify",
        examples: &[(
            "in a daily job: the exit code tells",
            "portcullis journal --config portcullis.toml verify",
        )],
        sections: &[(
            "Exit codes",
            &[
                ("0", "each entry is as it was written"),
                ("1", "an entry was changed or is missing"),
                USAGE,
                STORE,
            ],
        )],
    },
    Page {
        command: "journal export",
        examples: &[(
            "for an archive",
            "portcullis journal --config portcullis.toml export > journal.ndjson",
        )],
        sections: &[("Exit codes", OF_STORE)],
    },
    Page {
        command: "store",
        examples: &[
            ("take content in", "portcullis store import --config portcullis.toml content.ndjson"),
            ("a daily job", "portcullis store prune --config portcullis.toml"),
        ],
        sections: &[(
            "Exit codes",
            &[("0", "done"), ("1", "import: a file was refused"), USAGE, STORE],
        )],
    },
    Page {
        command: "store migrate",
        examples: &[(
            "after an update, with the server stopped",
            "portcullis store migrate --config portcullis.toml",
        )],
        sections: &[("Exit codes", OF_STORE)],
    },
    Page {
        command: "store import",
        examples: &[
            (
                "files in this order, each whole or not at all",
                "portcullis store import --config portcullis.toml accounts.ndjson feeds.ndjson",
            ),
            (
                "from another program",
                "zcat content.ndjson.gz | portcullis store import --config portcullis.toml -",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[
                ("0", "done"),
                ("1", "a file was refused: its lines were named, and nothing of it is stored"),
                USAGE,
                STORE,
            ],
        )],
    },
    Page {
        command: "store export",
        examples: &[
            ("all content", "portcullis store export --config portcullis.toml > content.ndjson"),
            (
                "of one type",
                "portcullis store export --config portcullis.toml --type podcast > podcasts.ndjson",
            ),
        ],
        sections: &[("Exit codes", OF_STORE)],
    },
    Page {
        command: "store prune",
        examples: &[
            ("a daily job", "portcullis store prune --config portcullis.toml"),
            (
                "posts of the last year only",
                "portcullis store prune --config portcullis.toml --feed-items-older-than 365d",
            ),
        ],
        sections: &[("Exit codes", OF_STORE)],
    },
    Page {
        command: "sign-webhook",
        examples: &[
            ("a signature", "portcullis sign-webhook --secret-file webhook.secret event.json"),
            (
                "an event, as the verifier sends it",
                r#"signature=$(portcullis sign-webhook --secret-file webhook.secret event.json)
curl --data-binary @event.json -H "x-service-verifier-signature: $signature" \
  -H 'content-type: application/json' http://127.0.0.1:8082/functions/age-verifier-webhook"#,
            ),
        ],
        sections: &[("Exit codes", &[("0", "done"), USAGE, INTERNAL])],
    },
    Page {
        command: "token",
        examples: &[("for relay.token_files", "portcullis token new relay.token")],
        sections: &[(
            "Exit codes",
            &[("0", "done"), ("2", "usage, or the file is there already"), INTERNAL],
        )],
    },
    Page {
        command: "token new",
        examples: &[
            ("for relay.token_files", "portcullis token new relay.token"),
            (
                "the next one, while the first is still good",
                "portcullis token new relay.token.next",
            ),
        ],
        sections: &[(
            "Exit codes",
            &[("0", "done"), ("2", "usage, or the file is there already"), INTERNAL],
        )],
    },
    Page {
        command: "completions",
        examples: &[
            ("in this bash", "source <(portcullis completions bash)"),
            ("for every bash", "portcullis completions bash > /etc/bash_completion.d/portcullis"),
            (
                "for zsh, in a folder of its fpath",
                "portcullis completions zsh > /usr/share/zsh/vendor-completions/_portcullis",
            ),
            ("for fish", "portcullis completions fish > /etc/fish/completions/portcullis.fish"),
        ],
        sections: &[("Exit codes", &[("0", "done"), ("2", "usage"), INTERNAL])],
    },
    Page {
        command: "man",
        examples: &[
            ("read the page of the program", "portcullis man | man -l -"),
            ("install all of them", "portcullis man /usr/local/share/man/man1"),
        ],
        sections: &[("Exit codes", &[("0", "done"), ("2", "usage"), INTERNAL])],
    },
];
