//! Decodes the images of a message, in either of the two forms that clients send.

use serde_json::{Map, Value};

use super::DecodeLimits;
use super::fields::{FieldError, Fields};
use crate::kernel::event::Image;

/// Decodes the images of a message.
pub(super) fn read(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Vec<Image>, FieldError> {
    let items = match fields.value("images") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(fields.error("images", "must be a list of images")),
    };
    if items.len() > limits.images {
        let (most, found) = (limits.images, items.len());
        return Err(fields.error("images", format!("must be at most {most} images, not {found}")));
    }
    let mut bytes = 0_usize;
    let mut images = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let image = item.as_object().and_then(parse_image);
        let image = image.ok_or_else(|| {
            let field = format!("images[{at}]");
            FieldError::new(field, "must be an image with a type and data in base64")
        })?;
        bytes = bytes.saturating_add(image.data.len());
        images.push(image);
    }
    let most = limits.image_bytes;
    if bytes > most {
        return Err(fields.error("images", format!("must be at most {most} bytes together, not {bytes}")));
    }
    Ok(images)
}

/// Decodes one image; in the older form its fields are in `source`.
fn parse_image(item: &Map<String, Value>) -> Option<Image> {
    let source = item.get("source").and_then(Value::as_object).unwrap_or(item);
    let names = ["mimeType", "mediaType", "media_type"];
    let mime = names.into_iter().find_map(|name| source.get(name)?.as_str())?;
    let data = source.get("data")?.as_str()?;
    let data = data.split_once(";base64,").map_or(data, |(_, data)| data);
    (is_image(mime) && is_base64(data)).then(|| Image { mime: mime.to_owned(), data: data.to_owned() })
}

fn is_image(mime: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    mime.len() <= 64 && mime.strip_prefix("image/").is_some_and(|kind| !kind.is_empty() && kind.bytes().all(plain))
}

fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !body.is_empty() && data.len().is_multiple_of(4) && data.len() - body.len() <= 2 && body.bytes().all(plain)
}
