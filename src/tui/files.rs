//! Files of the session's directory: their names for completion, and images that a message names.

use std::fmt;
use std::io::Read;
use std::path::Path;

use data_encoding::BASE64;
use ignore::WalkBuilder;

/// How many files are listed.
const MAX_FILES: usize = 20_000;
/// How many images a message may have, and how large each may be.
const MAX_IMAGES: usize = 8;
const MAX_IMAGE_BYTES: u64 = 4 * 1024 * 1024;

/// An image that is sent with a message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AttachedImage {
    /// Its media type.
    pub(crate) mime: &'static str,
    /// Its data, in base64.
    pub(crate) data: String,
}

impl fmt::Debug for AttachedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttachedImage({}, {} bytes)", self.mime, self.data.len())
    }
}

/// Lists the files below a directory, without those that git ignores.
pub(crate) fn list(directory: &str) -> Vec<String> {
    let root = Path::new(directory);
    let mut walk = WalkBuilder::new(root);
    walk.require_git(false);
    let files = walk.build().flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| Some(entry.path().strip_prefix(root).ok()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.take(MAX_FILES).collect();
    names.sort_unstable();
    names
}

/// Loads the images that a text names as `@PATH`.
pub(crate) async fn load_images(text: &str, directory: &str) -> Vec<AttachedImage> {
    let paths: Vec<(String, &'static str)> = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('@'))
        .filter_map(|path| Some((Path::new(directory).join(path).to_str()?.to_owned(), media_type(path)?)))
        .take(MAX_IMAGES)
        .collect();
    if paths.is_empty() {
        return Vec::new();
    }
    let load = move || paths.iter().filter_map(|(path, mime)| load_image(path, mime)).collect();
    tokio::task::spawn_blocking(load).await.unwrap_or_default()
}

fn load_image(path: &str, mime: &'static str) -> Option<AttachedImage> {
    let file = std::fs::File::open(path).ok()?;
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= MAX_IMAGE_BYTES)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
    file.take(MAX_IMAGE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(AttachedImage { mime, data: BASE64.encode(&bytes) })
}

fn media_type(path: &str) -> Option<&'static str> {
    let extension = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_are_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a.rs", ""), ("target.log", ""), (".gitignore", "*.log\n"), ("sub/b.rs", "")] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(list(dir.path().to_str().unwrap()), ["a.rs", "sub/b.rs"]);
    }

    #[tokio::test]
    async fn a_named_image_is_loaded_and_other_words_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.png"), "data").unwrap();
        let text = "see @x.png and @missing.png and @notes.txt and x.png";
        let images = load_images(text, dir.path().to_str().unwrap()).await;
        assert_eq!(images, [AttachedImage { mime: "image/png", data: BASE64.encode(b"data") }]);
    }
}
