"""Makes tales.txt, the text that the bundled models learn, of plain-text books of Project Gutenberg.

    python corpus.py FOLDER      # the books as FOLDER/NUMBER.txt, see BOOKS; writes FOLDER/tales.txt and FOLDER/held-out.txt

The books are collections of fairy tales that were published before 1930; Project Gutenberg gives each as in the public domain in the
United States. Its header, licence and trademark are cut off with everything else that is not a tale.
tales.txt has a paragraph a line and an empty line after each tale, in printable ASCII; held-out.txt has those of its tales that no
model learns. Neither they nor the books are committed. A book that is missing is left out.
"""

import hashlib
import pathlib
import re
import sys
import unicodedata

# Number of the ebook (https://www.gutenberg.org/ebooks/NUMBER), what it is, SHA-256 of the copy that was used, how the first line of
# its first tale begins, and how the line after its last tale begins (None: nothing comes after it).
BOOKS = [
    (4018, "Yei Theodora Ozaki, Japanese Fairy Tales, 1908",
     "423dc4210aa03999600dd92f7af8cf8b6927ee6c9e614a0d9bbfdeee28241de3", "Long, long ago there lived, in Japan", "THE END."),
    (7439, "Joseph Jacobs, English Fairy Tales, 1890",
     "deef11602e7230a78e940aeed23e8b06d4690c44aa6cff4a20db3a4ee354e887", "Once upon a time there was a woman, and she baked", "NOTES AND REFERENCES"),
    (7128, "Joseph Jacobs, Indian Fairy Tales, 1892",
     "9ddc630db8e5deaed5f265afc93e3931691182b5e9f533db9fa763cb0d94bab5", "The Bodhisatta was at one time born", "Notes and References"),
    (17034, "Flora Annie Steel, English Fairy Tales, 1918",
     "210d314ed6d8c15bda88c701652e11ff489045e4cd28cb4c2fd7bf8affe6cc52", "In the darksome depths of a thick forest", "***END OF"),
    (14241, "Joseph Jacobs, More English Fairy Tales, 1894",
     "d9ae22637c9e0428b651e51f689ead247ee8eaf9cab3c039c7aa3b97696157d6", "Newtown, or Franchville", "Notes and References"),
    (7885, "Joseph Jacobs, Celtic Fairy Tales, 1892",
     "54aad5bd5fbcedf8d8a455c78b41d1f41f39606e6c672d59df752a735afd9091", "Connla of the Fiery Hair was son", "NOTES AND REFERENCES"),
    (7871, "William Elliot Griffis, Dutch Fairy Tales for Young Folks, 1918",
     "d5b4b34892db6cc66fa9f8027ed5c72908b77aecf1ed867302545e0dd54d88cb", "Long ago, in Dutch Fairy Land", "End of the Project"),
    (18674, "Norman Hinsdale Pitman, A Chinese Wonder Book, 1919",
     "0e2cc2fdc85536dfd3a0f1a2a61caa4561605607cc9a161be91c0b90b50b4183", '"What we shall eat to-morrow', "End of Project"),
    (14916, "Hamilton Wright Mabie (editor), Fairy Tales Every Child Should Know, 1905",
     "fd786f6625935a1aed5fe007e3d6a61cbf08edece53d11626f2221c566d97fc1", "There was once a woman who had three daughters, of whom", "***END OF"),
    (19734, "Dinah Maria Mulock, The Fairy Book, 1863",
     "f49b062702c992c251fae703bfd9b28b45e02ebcefad90a8047b086b27c03a90", "Once there was a royal couple who grieved", "THE END."),
    (25555, "Alexander Chodsko, Fairy Tales of the Slav Peasants and Herdsmen, translated by Emily J. Harding, 1896",
     "f05992ea39a796a5e427acae359482332a0e64bcb937061ea9c27a3217ea01e2", "Once upon a time there were two brothers whose father", "THE END"),
    (20552, "Mite Kremnitz, Roumanian Fairy Tales, adapted by J. M. Percival, 1885",
     "50411ddbf248231669126abfaf0bb9fbd3bba4688fb91db37b844a3204fe385a", "At the edge of the village, where the peasants", "End of the Project"),
    (19713, "Parker Fillmore, The Laughing Prince, 1921",
     "2bd9ad570309fd9f403a0ef365674746e7a9f1c0f4a16fdd10302ef439d47580", "There was once a farmer who had three sons", "THE END"),
    (22168, "Edmund Leamy, The Golden Spears and Other Fairy Tales, 1911",
     "270d1dbf24e68d9b5b5418aeb940eeb2474ef36eca5836221535867f5e5910ca", "Once upon a time there lived in a little house", "NOTES"),
    (1597, "Hans Christian Andersen, Andersen's Fairy Tales",
     "bf5e45fcda8f0349efda6c9e9f07646b3eb3a641c22558b2d768679283a5c207", "Many years ago, there was an Emperor", None),
]

SHA256 = "3f5776eeb4a11b00a8c8bb52690e936a9537543ed4dd26f0c97aefe1fad97a01"  # of tales.txt

HELD_OUT = 40  # every 40th tale is held out

QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--", "\u2026": "...",
                        "\u00a0": " ", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe", "_": "", "`": "'"})


def plain(text):
    """Printable ASCII and newlines: accents are dropped, as are footnote marks and notes on pictures."""
    text = unicodedata.normalize("NFKD", text.translate(QUOTES))
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = re.sub(r"\[(Illustration|Footnote|Transcriber)[^\]]*\]", "", text)
    return re.sub(r"\[\w{1,2}\]", "", text)


def is_prose(lines):
    """Tells paragraphs of a tale from verses, lists and captions, which are indented, and from anything with unusual characters."""
    text = " ".join(lines)
    return all(" " <= c <= "~" for c in text) and not re.search(r"[\[\]{}<>|=+@#$%^*\\/]", text) and not lines[0].startswith(" ")


def is_heading(text):
    letters = [c for c in text if c.isalpha()]
    return len(text) < 100 and (not letters or sum(c.isupper() for c in letters) > 0.7 * len(letters) or text[-1] not in ".!?\"',;:-)")


def tales(book, first, last):
    """Lists the tales of a book: lists of paragraphs."""
    lines = plain(book.replace("\r\n", "\n")).split("\n")
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    end = next((i for i, line in enumerate(lines) if last and i > start and line.startswith(last)), len(lines))
    found = [[]]
    for block in re.split(r"\n\s*\n", "\n".join(lines[start:end])):
        block = [line.rstrip() for line in block.strip("\n").split("\n") if line.strip()]
        if not block:
            continue
        text = re.sub(r"\s+", " ", " ".join(block)).strip()
        if is_heading(text):
            found.append([])
        elif is_prose(block):
            found[-1].append(text)
    return [tale for tale in found if sum(map(len, tale)) > 400]


def main():
    folder = pathlib.Path(sys.argv[1])
    out, seen = [], set()
    for number, title, digest, first, last in BOOKS:
        path = folder / f"{number}.txt"
        if not path.exists():
            print(f"{number}.txt is missing: tales.txt will differ")
            continue
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            print(f"{number}.txt is another copy than was used: tales.txt will differ")
        count = 0
        for tale in tales(data.decode("utf-8-sig"), first, last):
            tale = [p for p in tale if len(p) < 80 or p not in seen]  # some tales are in two books
            seen.update(tale)
            if tale:
                out.append("\n".join(tale) + "\n\n")
                count += len(out[-1])
        print(f"{number:6} {count:8} bytes  {title}")
    text = "".join(out).encode("ascii")
    (folder / "tales.txt").write_bytes(text)
    (folder / "held-out.txt").write_text("".join(out[::HELD_OUT]), "ascii")
    digest = hashlib.sha256(text).hexdigest()
    print(f"tales.txt: {len(out)} tales, {len(text)} bytes, SHA-256 {digest}" + ("" if digest == SHA256 else f", want {SHA256}"))


if __name__ == "__main__":
    main()
