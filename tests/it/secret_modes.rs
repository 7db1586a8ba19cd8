//! Files of secrets as an operator, Kubernetes and Docker provide them: which modes are accepted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;

const REFUSED: &str = "lets others read it; set mode 600 and replace the secret";
const REMEDY: &str = "set secrets.allow_group_read = true";
const FOLDER: &str = "others can write to its folder";

/// The code and output of `check` for a token file of this mode in a folder of this mode.
fn check(mode: u32, folder_mode: u32, allowed: bool, is_linked: bool) -> (i32, String) {
    let folder = Folder::new();
    let data = folder.path().join("..2024");
    fs::create_dir(&data).unwrap();
    let file = data.join("token");
    fs::write(&file, "t".repeat(40)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let path = if is_linked {
        folder.path().join("token")
    } else {
        file
    };
    if is_linked {
        // as Kubernetes does; anybody may add names next to the link, but not replace it
        symlink("..2024/token", &path).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    }
    fs::set_permissions(&data, Permissions::from_mode(folder_mode)).unwrap();
    let output = Setup::before(Node::nowhere())
        .set("admin.token_file", &format!("\"{}\"", path.display()))
        .set("secrets.allow_group_read", &allowed.to_string())
        .run("check");
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn each_mode_has_its_answer() {
    for (mode, folder_mode, allowed, complaints, why) in [
        (0o600, 0o755, false, &[][..], "only its owner reads it"),
        (0o400, 0o777, false, &[], "as before"),
        (
            0o440,
            0o755,
            false,
            &[REFUSED, REMEDY],
            "Kubernetes, not announced",
        ),
        (
            0o444,
            0o755,
            false,
            &[REFUSED, REMEDY],
            "Docker, not announced",
        ),
        (0o440, 0o755, true, &[], "Kubernetes"),
        (0o440, 0o2755, true, &[], "Kubernetes with fsGroup"),
        (0o444, 0o755, true, &[], "Docker"),
        (0o640, 0o750, true, &[], "readable by the group"),
        (0o600, 0o777, true, &[], "only its owner reads it"),
        (
            0o440,
            0o777,
            true,
            &[FOLDER, "0777"],
            "anybody can replace it",
        ),
        (
            0o444,
            0o775,
            true,
            &[FOLDER, "0775"],
            "the group can replace it",
        ),
        (0o460, 0o755, true, &[REFUSED], "the group can write it"),
        (0o446, 0o755, true, &[REFUSED], "anybody can write it"),
        (
            0o450,
            0o755,
            true,
            &[REFUSED],
            "no mount makes it executable",
        ),
    ] {
        for is_linked in [false, true] {
            let (code, text) = check(mode, folder_mode, allowed, is_linked);
            let wanted = i32::from(!complaints.is_empty());
            assert_eq!(code, wanted, "{mode:o} in {folder_mode:o}: {why}: {text}");
            for complaint in complaints {
                assert!(
                    text.contains(complaint),
                    "{mode:o} in {folder_mode:o}: {why}: {text}"
                );
            }
            assert!(!text.contains("tttt"), "no secret is printed");
            let has_remedy = text.contains(REMEDY);
            assert_eq!(has_remedy, complaints.contains(&REMEDY), "{mode:o}: {text}");
        }
    }
}

#[test]
fn a_reload_decides_anew() {
    let folder = Folder::new();
    let token = folder.secret("token", &"t".repeat(40));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let setup = Setup::before(Node::nowhere()).set("admin.token_file", &format!("\"{token}\""));
    let edge = setup.start();
    fs::set_permissions(&token, Permissions::from_mode(0o440)).unwrap();
    edge.signal("HUP");
    edge.line("a refused file", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains(REMEDY))
    });
    edge.rewrite(&setup.set("secrets.allow_group_read", "true"));
    edge.signal("HUP");
    edge.line("the change", |line| {
        line["key"] == "secrets.allow_group_read"
    });
}
