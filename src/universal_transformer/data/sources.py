"""Where data comes from: official addresses, and the SHA-256 of every file that is known.

A hash here was taken from a copy of the published file; the one exception, an archive, is marked. None means that
there was no copy to take it from: the first download then stands for itself, and later ones are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from universal_transformer.data.hashes import AGREEMENT_BEGINNINGS, AGREEMENT_SAMPLE, DIGITS, NOVELS, TATOEBA


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a data set; one without an address comes out of the data set's archive."""

    path: str
    sha256: str | None
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: its files, and the folders in which it may lie (the first is where `fetch` puts it)."""

    about: str
    licence: str
    places: tuple[str, ...]
    files: tuple[File, ...]
    archives: tuple[File, ...] = ()
    """Archives with the files that have no address of their own; the first that can be had is used."""
    archive_prefix: str = ""
    """What stands before the files' paths inside the archive."""


def _github(
    repository: str, commit: str, folder: str, hashes: Mapping[str, str | None], *, into: str = ""
) -> tuple[File, ...]:
    """Files of a folder of a repository at a commit, by their paths in it; on disk they stand in the folder `into`."""
    base = f"https://raw.githubusercontent.com/{repository}/{commit}/{folder}"
    return tuple(File(path=into + path, sha256=sha256, url=base + path) for path, sha256 in hashes.items())


# bAbI: the same test files are in en and en-10k
_BABI_TEST: dict[str, str | None] = {
    "qa1_single-supporting-fact_test.txt": "55acf66cef2f6d798e2aa1d056e1ec8f24e910ea9215b639450574321132959b",
    "qa2_two-supporting-facts_test.txt": "eff93fb9cd81ba02eb765772cf7cc269769ed44ec71cbbbc19cfb16ee5eba0f6",
    "qa3_three-supporting-facts_test.txt": "17795c977100baf8188f386522ae301b62d6c1a13efc01b3aea781e588b4d57f",
    "qa4_two-arg-relations_test.txt": "07f0ca18ddeea9eed4ba6d59e162adcb0ce44815721114b3540d92825509331e",
    "qa5_three-arg-relations_test.txt": "ec825c1c8a76e63a31f0d7a7763cd63740e98332fa9bdf246a19068949bd5f97",
    "qa6_yes-no-questions_test.txt": "b108b16f1eccbd1c24df6dca2649079a7b2f10af7fd12d4c45a3393802de59e3",
    "qa7_counting_test.txt": "a74d1f2b91329b2bae814d41cdac2fbdfdf0328562b7d8afa9a0fa576d461e27",
    "qa8_lists-sets_test.txt": "362a653c821a580fa315a85243b4f03bfa06fa7e0269b6f8e596f8fe6911646a",
    "qa9_simple-negation_test.txt": "63590aff3f89993db409f0e9a9eb39c2a5b9d5efff99b255d800a891b0044d9f",
    "qa10_indefinite-knowledge_test.txt": "fde8f20ed0b3ba979058ed391a566af34653f23baab5b2793ee37f87ef4e88b7",
    "qa11_basic-coreference_test.txt": "46f3290d0158ce1285a40cd2d793f5a65f86ae5000226e165cbc85a3dfeb2f6f",
    "qa12_conjunction_test.txt": "6437718f8f9801ce345869e910b896836cdc6fd2d01dc7b4d2df49730703b4b1",
    "qa13_compound-coreference_test.txt": "76a25b684f23c9cc473d8cd1465506168b9a1ec8891cfc59d0bbd87e6a064990",
    "qa14_time-reasoning_test.txt": "e3f0b19858ffbec3ed1e49076cc4d1295a89ce146c50318b862f13f202b3caf2",
    "qa15_basic-deduction_test.txt": "32b77e117fe9acf5f94906684e3b5206de0108e646c76e1da3e022896ec7ee94",
    "qa16_basic-induction_test.txt": "4a11e55366f2a5a859b5a81f683ee23801bdbe71ef984e51adb976bd053e8dcf",
    "qa17_positional-reasoning_test.txt": "9e1e0250ed4ec1831757fab26c04138f81ea557ebf6976a220db879cbed04bac",
    "qa18_size-reasoning_test.txt": "d34f70eb7228a276fcb3a7854174fe562c5634f4fb454a39fc3d1ad9934be3ef",
    "qa19_path-finding_test.txt": "023e391f0d7f79c9e6ae1c46c093e2d0dbd50ab8fbd8965e037a75e3614c20e5",
    "qa20_agents-motivations_test.txt": "bd3bde3788ac14ba0ae095078f7b820fbd2bfa6a34dba9d1d46a34afde9c2729",
}

_BABI_TRAIN: dict[str, str | None] = {
    "qa1_single-supporting-fact_train.txt": "c64ba9b1a49bbb111ffc4cd2ae4f129d25c012399dd7ade9679eea464b9afb05",
    "qa2_two-supporting-facts_train.txt": "a4978af5bc0dc30191810e7c9949aaa6eae939ed0f6beb9fcb5f4330c2a27860",
    "qa3_three-supporting-facts_train.txt": "a6e78019f36a02a7ed71fe6aaded0b563ff09c8deec392931801fcd9c6af4d60",
    "qa4_two-arg-relations_train.txt": "c9370502d85fa382f32d1fea2111e817f81ae9e3e79eb2924a1a5392a90417fa",
    "qa5_three-arg-relations_train.txt": "086cd59c3ca9677bfac3d6a22ca5853c76a5c1fbae3159c7c4a6aef759a74ec0",
    "qa6_yes-no-questions_train.txt": "5a133115ee35d475776df703ff605d145b11effbcdbf7e74861f9d5639246a5a",
    "qa7_counting_train.txt": "dca03bd91876951c49f1c971c83c9dd55404de60201b7b6435451cf7ddb4751c",
    "qa8_lists-sets_train.txt": "058604df6f9440458317e8ae685d2b7b84261e1a80b4d6410a9140d16f81bf06",
    "qa9_simple-negation_train.txt": "0c3b89921af0caea1c4059ee3f7b7f2a88869f924195a428da37820446b8c49f",
    "qa10_indefinite-knowledge_train.txt": "0b7691689447bab05476c5b48c44999b41e747c3978df69c18fdd87b60d6e8b3",
    "qa11_basic-coreference_train.txt": "9468de9a1f256f43dfda693a5d07182d21149a82b65f7c2451c64e9cff5eb138",
    "qa12_conjunction_train.txt": "45c2764bb2d3c8f699d35e9d9aa7958fcd96379c6e907116cdf74526c108bb25",
    "qa13_compound-coreference_train.txt": "533a391edbda743e4c99504de88b40cdded5b1d5ef454d1390f0863f748a4cc9",
    "qa14_time-reasoning_train.txt": "b7561cbc624205c9c2fdbb8c843cfa8ad90edd65e78bb223fc6dea8113662df8",
    "qa15_basic-deduction_train.txt": "e856ebfdcce4dd7d617c1d10f985e96a0850c0ca18e9a19a017cb710d135ed3d",
    "qa16_basic-induction_train.txt": "20121005137e3d4b061a086eb177a456303d5742b764eb8da2d0e480b6af4d28",
    "qa17_positional-reasoning_train.txt": "20083bf56ff74f0e7cf5e3e2f8c3905cdb8ef09293c3e8cf7a96ed8b45ae2277",
    "qa18_size-reasoning_train.txt": "18b7dcf52c9a0e87e4e7dd3d65b7e5a630de039645f52a1294197af7481d739d",
    "qa19_path-finding_train.txt": "dcb788352a56effb7bea1449128f31cc9c342c8c327b6df2caeee0e379e6ad3a",
    "qa20_agents-motivations_train.txt": "29580ad55fb7b4b29ba014696056cc68f8f347dac3be88470fd692ad60150398",
}

_BABI_TRAIN_10K: dict[str, str | None] = {
    "qa1_single-supporting-fact_train.txt": "749ea9f7c99070feb2d88c975a254417a0dcc8274add4435ae5ae24c7afc7e9d",
    "qa2_two-supporting-facts_train.txt": "d4074c0c5d54f70ce2f538056ce2b6ef6a313da336da4245f1a24f1298e37ef3",
    "qa3_three-supporting-facts_train.txt": None,
    "qa4_two-arg-relations_train.txt": "5d11b821d35234988ab907866aa7ce718e6b6d751acf63bdef52262afb59f12c",
    "qa5_three-arg-relations_train.txt": "2506910935b701bac64fc8b1d7ff12bd8d0f47ceefca183454282bec784c12a5",
    "qa6_yes-no-questions_train.txt": "602f379184bf3cb59660d0f7769d9c94ccdc1fc4d82dfe90bd460d985b1ff0c5",
    "qa7_counting_train.txt": "4a2508733bef9b38cfce4b3108a91b83cdee378de4a7370e4d32fea2dacd3b7d",
    "qa8_lists-sets_train.txt": "9518da2d3aa5d98bec33335e0d5ba3a22c2bd1929ee679085d37eb50a7652e4a",
    "qa9_simple-negation_train.txt": "5f8949f6ef7d64516fc4dd5732b12b5932d057b1a614e8ac94e795fb020d4ff0",
    "qa10_indefinite-knowledge_train.txt": "c5c0788b0446095c07a0442784cad2b59c1d58e875ebe8ad852f5e3f628613f4",
    "qa11_basic-coreference_train.txt": "edfcd97fecd4a5045af25e1790cf1408856ae362c39521b1b69cd32b88ec0ced",
    "qa12_conjunction_train.txt": "39d58df3564916c66cebc98befb65d605c032181e51208730fd8837a77bc166a",
    "qa13_compound-coreference_train.txt": "c530fdf122d26617a8a03ba5cdbacee87c22624ba7f50d1f07f9658c900e22d8",
    "qa14_time-reasoning_train.txt": "c322e0814eef71f088af1aa1334e7ae4b1ee6ca18f2ee94c05e2189226964ed6",
    "qa15_basic-deduction_train.txt": "0a86673f7fafa484f8ee394048f03de19405bdc40b58f21086969efad2862010",
    "qa16_basic-induction_train.txt": "27fef347ce0b25dd148efea2b15f154926e0e9069d4ea6ab9cfca3add492ab35",
    "qa17_positional-reasoning_train.txt": "8a383651e009db50d6c9effed5778b8646c28c55fadb1592b5f4d8d3a187bbce",
    "qa18_size-reasoning_train.txt": "9e7c15107067d2070170ef12579a8bfe34dfc35a7ac9ebd13f2001dc1a7488f9",
    "qa19_path-finding_train.txt": "6cfdc6f448e3cf0e3d8a390fa3add461935b033f89ede32aeef30812401ec91e",
    "qa20_agents-motivations_train.txt": "36f20f3baf6bad2297d5b9fd877e633550c36106fe78bc10ddfb7b1eede62573",
}

_MULTI30K: dict[str, str | None] = {
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2018_flickr.de.gz": "ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608",
    "test_2018_flickr.en.gz": "ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}

_WMT_NEWS: dict[str, str | None] = {
    "news-test2008.deu": "6d86c805e6cd008c11143816daac272fdf5a3afea816983c43005717d6fe3ae2",
    "news-test2008.eng": "134e1140848bb0d05e774dbe35b8b69602faf401250c03dbb437bdbe38c37b6f",
    "newstest2009.deu": "41f7d4a766a99f78646474dbd21af0dd0285a5dad5c48d1b627334c11a1771d9",
    "newstest2009.eng": "3fc92718e7b994ca0a5dc57e63b68d5c80244a56e5bb1cec11d2e8dd10b3ff3c",
    "newstest2010.deu": "4f4b02d3abe150ca47a745d138d90f688edb20dd2d2fedca16aa05fd1e2018b1",
    "newstest2010.eng": "1ebece77e333965cbc66fde735a6f17e026b4d6690f4f7fdaba839b7bdadac3b",
    "newstest2011.deu": "033bc05659f61c5e51170973267d21e23a9a968557b866f3842c92e416a60e1b",
    "newstest2011.eng": "d387569743c0fa9097df4d4e2c1dd9e6ba9ef3cee6e0f473da3204c887dcf8fd",
    "newstest2012.deu": "946b9587b79271b0f3ce9cc8c0e5b310e3021ef598e1ba5dc2a24fef8960de30",
    "newstest2012.eng": "f9e51f85c4948033fc7d77ef427f4d88908a8dd3f778970f62d0baafac3ff97e",
    "newstest2013.deu": "d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca",
    "newstest2013.eng": "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e",
    "newstest2014.deu": "ae5d110486bc33d7175e9e28c7d0051eb3e5fcd2166dd93371089852c091a20e",
    "newstest2014.eng": "7294bccf2879a97b3706b95c9595f1459617a8ee7130d5d8581c910e69736971",
    "newstest2015.deu": "796cce52ab248469187b60f60715a738a0b92944dc010a69a0083de7fae1b513",
    "newstest2015.eng": "422fbb5a274c7aae1a0890381cd4516307ca7bc957604220d4871a91664121e5",
    "newstest2016.deu": "738ca1ced4099937127be3208ba70d46e7a93550cd57cfd645f3d35e0e52a254",
    "newstest2016.eng": "cd5c112a358d9c99b9557eb358e16d7a94f8fa93ad7aa61bf5f1141f2e1f8854",
    "newstest2017.deu": "675e4f7e6045dacf56507e29b24106d771a571e0eb58d822806b086cdcf892f4",
    "newstest2017.eng": "11adaec47477928dab9cb3fc9279d99dbbbfec7161f3abf6fddd759668fcd703",
    "newstest2018.deu": "c53059fc440b3771aef2a83b15fddd8d2b3490c55b552dcae245f9a2df126c9c",
    "newstest2018.eng": "721b207ca2b4e4689f978e17ee5edb0988d7c901acd651fd666bcd9c1950233b",
    "newstest2019.deu": "ba6b9c811a564c7747bdc92de2b31513bc608fd9c7c24df85b654e38b83bca81",
    "newstest2019.eng": "3a62f94f5c42a395d4452ec890ca45afc75866b5b4b1d493429433cfe8469fe9",
    "newstest2020.deu": "af6130ca5716921733d3cad61f39c9edd694572deb0fdfc9eae4262ea19d560a",
    "newstest2020.eng": "1a21e5c163df57b7755e28d32211c1f74b7e4eeb1768340dc49a206574a6481f",
}

_AGREEMENT: dict[str, str | None] = {
    "linzen_testset/subj_agr_filtered.text": "618f7583d6cc3942b2127e5ffb61603e0fd8b031628d574b10b9bc2930452be4",
    "linzen_testset/subj_agr_filtered.gold": "984be2eaf9f37812b1727ec165b2c9802fb71552684cc6a123daf96091118f5b",
    "linzen_testset/subj_agr_filtered.eval": "c1d83149ce080c1c5db9d7ba8cbe3c11d6ca9618ce4cc8eb50c57e1934717903",
}

_NONSENSE: dict[str, str | None] = {
    "generated.text": "c7bebc2985793abab89ce3f70cf9c931fa555db3f3956f78f0c3398101d9c56b",
    "generated.gold": "d9271bb3ac076909724227e87fbb8fc6136dc7d0aa4bd857bd5e4bd4a62272e5",
    "generated.eval": "85b71164d5fc356683227deb4f6d630063f0c462b0e755c631048b0c6502f600",
    "generated.tab": "da6dd6390965f1292af8ffde649a8f18d39d67eec3c7d7a8dfc8559d35e8081b",
}

_LAMBADA: dict[str, str | None] = {
    "lambada_development_plain_text.txt": "f5b0f1e38fcdad6a1cd3a17bee4b6932a28cd9c5f463ada970c61de0f8679f2f",
    "lambada_test_plain_text.txt": "4ab6062b68422bf2e83653d367c9765d42404f7ec21b8b59b6518b45606aaef2",
}

_MNIST = "76157793a26e2eed9313a6cde6ee60d8167a04fd"
_FSDD = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"

DATASETS: dict[str, Dataset] = {
    "babi": Dataset(
        about="bAbI question answering, tasks 1-20, v1.2: English, 1,000 and 10,000 questions a task",
        licence="CC BY 3.0",
        places=("babi/tasks_1-20_v1-2", "tasks_1-20_v1-2", "babi", "."),
        files=tuple(
            File(path=f"{folder}/{name}", sha256=sha256)
            for folder, hashes in (("en", _BABI_TEST | _BABI_TRAIN), ("en-10k", _BABI_TEST | _BABI_TRAIN_10K))
            for name, sha256 in hashes.items()
        ),
        archives=(
            # The publisher's own host. This hash is quoted from projects that downloaded it (they name ParlAI's build
            # script as its source), not taken from a copy; their hashes of two members are those above.
            File(
                path="babi.tar.gz",
                sha256="f7f0bee187efca0d81c3daac1b162cda4eb7f9505dee5ad6846eabbed3dbf92e",
                url="https://dl.fbaipublicfiles.com/parlai/babi/babi.tar.gz",
            ),
            # The address that the paper's authors gave; reported to be gone. Members are compared all the same.
            File(
                path="tasks_1-20_v1-2.tar.gz",
                sha256=None,
                url="https://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",
            ),
        ),
        archive_prefix="tasks_1-20_v1-2/",
    ),
    "multi30k": Dataset(
        about="Multi30k, English-German image descriptions: 29,000 training pairs, four test sets",
        licence="non-commercial research and education",
        places=("multi30k",),
        files=_github(
            "multi30k/dataset", "a3d2e0d26b56f3846f66a952536ffed4e401d05a", "data/task1/raw/", _MULTI30K
        ),
    ),
    "wmt_news_ende": Dataset(
        about="WMT news test sets 2008-2020, English-German (no training set)",
        licence="research",
        places=("wmt_news_ende",),
        files=_github(
            "Helsinki-NLP/OPUS-MT-testsets",
            "ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180",
            "testsets/eng-deu/",
            _WMT_NEWS,
        ),
    ),
    "tinyshakespeare": Dataset(
        about="40,000 lines of Shakespeare",
        licence="public domain",
        places=("tinyshakespeare",),
        files=_github(
            "karpathy/char-rnn",
            "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
            "data/tinyshakespeare/",
            {"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
        ),
    ),
    "wikitext2": Dataset(
        about="WikiText-2, language-model text",
        licence="CC BY-SA 3.0",
        places=("wikitext2", "wikitext2_heldout"),
        files=_github(
            "pytorch/examples",
            "77f55b912142e11fcfdf5b530231fb9c52f181e8",
            "word_language_model/data/wikitext-2/",
            {
                "train.txt": None,
                "valid.txt": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "test.txt": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            },
        ),
    ),
    "lambada": Dataset(
        about="LAMBADA, the last word of a passage: development and test from copies (no training novels)",
        licence="CC BY 4.0",
        places=("lambada",),
        files=(
            *_github(
                "Victorwz/VaLM",
                "161accd153943a502ec7e3983c448dda07f9d975",
                "data/lambada/",
                _LAMBADA,
            ),
            File(
                path="lambada_test.jsonl",
                sha256="4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
                url="https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
            ),
        ),
    ),
    "blimp": Dataset(
        about="BLiMP, minimal pairs of English grammar: 67 x 1,000",
        licence="CC BY 4.0",
        places=("blimp",),
        files=_github(
            "alexwarstadt/blimp",
            "3e56b06fcabca9b30822fc66435fca6b1aa40bb1",
            "",
            {"BLiMP.zip": "172a1a714d72e72a89e8384dd531483f3d0f8a9aee3d33dccaf7992d8cecbb73"},
        ),
    ),
    "sva": Dataset(
        about="subject-verb agreement: 7,489 test sentences, 410 of Gulordava et al., Linzen's beginnings, a sample",
        licence="CC BY-NC 4.0 (colorless); the others state none (text: CC BY-SA, Wikipedia)",
        places=("sva",),
        files=(
            *_github(
                "facebookresearch/colorlessgreenRNNs",
                "dbffbf0f2ef86c50bac204d7a2292862e1c6036f",
                "data/",
                _AGREEMENT,
                into="colorless/",
            ),
            *_github(
                "facebookresearch/colorlessgreenRNNs",
                "dbffbf0f2ef86c50bac204d7a2292862e1c6036f",
                "data/agreement/English/",
                _NONSENSE,
                into="colorless/agreement_English/",
            ),
            *_github(
                "viking-sudo-rm/StackNN",
                "9c242c69273ae5c7ae3b784dc6a76ec64e9b54dc",
                "data/linzen/rnn_agr_simple/",
                AGREEMENT_BEGINNINGS,
                into="rnn_agr_simple/",
            ),
            *_github(
                "treszkai/edinburgh-nlu-cw",
                "7312229f3b7bd6cbcc8108173b8af51487cfe23b",
                "data/",
                AGREEMENT_SAMPLE,
                into="edinburgh_wiki/",
            ),
        ),
    ),
    "linzen": Dataset(
        about="subject-verb agreement: Linzen, Dupoux and Goldberg's 1.6 million sentences (table 2's own split)",
        licence="the repository is MIT; text: CC BY-SA (Wikipedia)",
        places=("linzen", "sva"),
        files=(
            # the address in the README of github.com/TalLinzen/rnn_agreement
            File(
                path="agr_50_mostcommon_10K.tsv.gz",
                sha256=None,
                url="https://www.dropbox.com/s/5axdu3q9jkxzjy8/agr_50_mostcommon_10K.tsv.gz?dl=1",
            ),
        ),
    ),
    "novels": Dataset(
        about="97 English novels of 1839 to 1929, 13.7 million words: stand-in training text for LAMBADA",
        licence="none stated; public domain (the latest ones depend on the country)",
        places=("novels",),
        files=_github(
            "computationalstylistics/100_english_novels",
            "143e601875d70e195f2cc5ebd8b034609271194d",
            "corpus/",
            NOVELS,
            into="corpus/",
        ),
    ),
    "tatoeba_ende": Dataset(
        about="Tatoeba, English-German: 17,565 pairs",
        licence="CC BY 2.0 FR",
        places=("tatoeba_ende", "wmt_news_ende"),
        files=_github(
            "Helsinki-NLP/OPUS-MT-testsets",
            "ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180",
            "datasets/helsinki_nlp/tatoeba/testsets/deu-eng/",
            TATOEBA,
        ),
    ),
    "fsdd": Dataset(
        about="Free Spoken Digit Dataset: 3,000 recordings of ten digits by six speakers, 8 kHz",
        licence="CC BY-SA 4.0",
        places=("fsdd",),
        files=(
            *_github(
                "Jakobovski/free-spoken-digit-dataset",
                _FSDD,
                "",
                {"README.md": "523de3cafa0f54707a0ab2760a2d32b640ccfe834a081d7d35c894f1fb6d79f5"},
            ),
            *(
                File(path=f"recordings/{digit}_{speaker}_{index}.wav", sha256=None)
                for digit in range(10)
                for speaker in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
                for index in range(50)
            ),
        ),
        archives=(
            File(
                path="recordings.tar.gz",
                sha256=None,
                url=f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{_FSDD}.tar.gz",
            ),
        ),
        archive_prefix=f"free-spoken-digit-dataset-{_FSDD}/",
    ),
    "mnist10k": Dataset(
        about="10,000 handwritten digits of MNIST as JSON",
        licence="MIT (repository); MNIST: CC BY-SA 3.0",
        places=("mnist10k",),
        files=(
            *_github("cazala/mnist", _MNIST, "", {"LICENSE": DIGITS["LICENSE"]}),
            *_github(
                "cazala/mnist",
                _MNIST,
                "src/digits/",
                {f"{digit}.json": DIGITS[f"digits/{digit}.json"] for digit in range(10)},
                into="digits/",
            ),
        ),
    ),
}
