"""Made-up stories as files of the bAbI format."""


def write_stories(data, folder):
    """``train.txt``, ``validation.txt`` and ``test.txt`` of `data` (`StoriesData`) in `folder`; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, stories in data.stories().items():
        paths.append(folder / f"{split}.txt")
        paths[-1].write_text("".join(f"{line}\n" for story in stories for line in story))
    return paths
