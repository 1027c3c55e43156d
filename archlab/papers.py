"""The papers that choices and figures come from, each cited once."""

from __future__ import annotations

from archlab.frozen import Frozen, replace


class Paper(Frozen):
    """Where an idea was published. place: the section, equation or figure; arxiv: its number there, if it has one."""

    authors: str
    year: int
    title: str
    arxiv: str | None = None
    place: str = ""

    def at(self, place: str) -> Paper:
        """The same paper, and where in it."""
        return replace(self, place=place)

    def __str__(self) -> str:
        number = f"arXiv:{self.arxiv}" if self.arxiv else ""
        return ", ".join(filter(None, (f"{self.authors} {self.year}", self.title, number, self.place)))


# --- models -----------------------------------------------------------------------------------------------------------

TRANSFORMER = Paper("Vaswani et al.", 2017, "Attention Is All You Need", "1706.03762")
GPT = Paper("Radford et al.", 2018, "Improving Language Understanding by Generative Pre-Training")
GPT_2 = Paper("Radford et al.", 2019, "Language Models are Unsupervised Multitask Learners")
T5 = Paper(
    "Raffel et al.",
    2019,
    "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    "1910.10683",
)
GPT_J = Paper("Wang and Komatsuzaki", 2021, "GPT-J-6B: a 6 Billion Parameter Autoregressive Language Model")
INSTRUCT_GPT = Paper(
    "Ouyang et al.", 2022, "Training Language Models to Follow Instructions with Human Feedback", "2203.02155"
)
PALM = Paper("Chowdhery et al.", 2022, "PaLM: Scaling Language Modeling with Pathways", "2204.02311")
BLOOM = Paper(
    "BigScience Workshop", 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", "2211.05100"
)
DEEPSEEK_V2 = Paper(
    "DeepSeek-AI",
    2024,
    "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
    "2405.04434",
)
LLAMA_3 = Paper("Dubey et al.", 2024, "The Llama 3 Herd of Models", "2407.21783")
GEMMA_2 = Paper("Gemma Team", 2024, "Gemma 2: Improving Open Language Models at a Practical Size", "2408.00118")
DEEPSEEK_V3 = Paper("DeepSeek-AI", 2024, "DeepSeek-V3 Technical Report", "2412.19437")
OLMO_2 = Paper("Walsh et al.", 2024, "2 OLMo 2 Furious", "2501.00656")
GPT_OSS = Paper("OpenAI", 2025, "gpt-oss-120b and gpt-oss-20b Model Card", "2508.10925")

# --- norms and residual layouts ---------------------------------------------------------------------------------------

LAYER_NORM = Paper("Ba et al.", 2016, "Layer Normalization", "1607.06450")
FIXUP = Paper("Zhang et al.", 2019, "Fixup Initialization: Residual Learning Without Normalization", "1901.09321")
RMS_NORM = Paper("Zhang and Sennrich", 2019, "Root Mean Square Layer Normalization", "1910.07467")
PRE_NORM = Paper("Xiong et al.", 2020, "On Layer Normalization in the Transformer Architecture", "2002.04745")
COGVIEW = Paper("Ding et al.", 2021, "CogView: Mastering Text-to-Image Generation via Transformers", "2105.13290")
SWIN_V2 = Paper("Liu et al.", 2021, "Swin Transformer V2: Scaling Up Capacity and Resolution", "2111.09883")

# --- positions --------------------------------------------------------------------------------------------------------

ROPE = Paper("Su et al.", 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", "2104.09864")
ALIBI = Paper(
    "Press et al.",
    2021,
    "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    "2108.12409",
)
NOPE = Paper(
    "Haviv et al.",
    2022,
    "Transformer Language Models without Positional Encodings Still Learn Positional Information",
    "2203.16634",
)
LENGTHS = Paper(
    "Kazemnejad et al.",
    2023,
    "The Impact of Positional Encoding on Length Generalization in Transformers",
    "2305.19466",
)
INTERPOLATION = Paper(
    "Chen et al.", 2023, "Extending Context Window of Large Language Models via Positional Interpolation", "2306.15595"
)
NTK = Paper("bloc97", 2023, "NTK-Aware Scaled RoPE, a post on r/LocalLLaMA")
YARN = Paper("Peng et al.", 2023, "YaRN: Efficient Context Window Extension of Large Language Models", "2309.00071")
LONGROPE = Paper("Ding et al.", 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", "2402.13753")

# --- attention --------------------------------------------------------------------------------------------------------

MQA = Paper("Shazeer", 2019, "Fast Transformer Decoding: One Write-Head is All You Need", "1911.02150")
LONGFORMER = Paper("Beltagy et al.", 2020, "Longformer: The Long-Document Transformer", "2004.05150")
FLASH = Paper(
    "Dao et al.", 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", "2205.14135"
)
GQA = Paper(
    "Ainslie et al.",
    2023,
    "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
    "2305.13245",
)
SINKS = Paper("Xiao et al.", 2023, "Efficient Streaming Language Models with Attention Sinks", "2309.17453")

# --- FFN, dropout, head -----------------------------------------------------------------------------------------------

RELU = Paper("Nair and Hinton", 2010, "Rectified Linear Units Improve Restricted Boltzmann Machines")
DROPOUT = Paper("Srivastava et al.", 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting")
GELU = Paper("Hendrycks and Gimpel", 2016, "Gaussian Error Linear Units (GELUs)", "1606.08415")
TIED = Paper("Press and Wolf", 2016, "Using the Output Embedding to Improve Language Models", "1608.05859")
TIED_LOSS = Paper(
    "Inan et al.", 2016, "Tying Word Vectors and Word Classifiers: A Loss Framework for Language Modeling", "1611.01462"
)
MIXTURE = Paper(
    "Shazeer et al.",
    2017,
    "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
    "1701.06538",
)
SILU = Paper(
    "Elfwing et al.",
    2017,
    "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement Learning",
    "1702.03118",
)
SWISH = Paper("Ramachandran et al.", 2017, "Searching for Activation Functions", "1710.05941")
GLU = Paper("Shazeer", 2020, "GLU Variants Improve Transformer", "2002.05202")
UNTIED = Paper("Chung et al.", 2020, "Rethinking Embedding Coupling in Pre-trained Language Models", "2010.12821")
PRIMER = Paper("So et al.", 2021, "Primer: Searching for Efficient Transformers for Language Modeling", "2109.08668")
DEEPSEEK_MOE = Paper(
    "Dai et al.",
    2024,
    "DeepSeekMoE: Towards Ultimate Expert Specialization in Mixture-of-Experts Language Models",
    "2401.06066",
)
BALANCE = Paper("Wang et al.", 2024, "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts", "2408.15664")

# --- costs ------------------------------------------------------------------------------------------------------------

ROOFLINE = Paper(
    "Williams et al.", 2009, "Roofline: An Insightful Visual Performance Model for Multicore Architectures"
)
KAPLAN = Paper("Kaplan et al.", 2020, "Scaling Laws for Neural Language Models", "2001.08361")
CHINCHILLA = Paper("Hoffmann et al.", 2022, "Training Compute-Optimal Large Language Models", "2203.15556")
SCALING_INFERENCE = Paper("Pope et al.", 2022, "Efficiently Scaling Transformer Inference", "2211.05102")
