"""What our samplers are compared with: the class of diffusers that each equals, and the schedule of Stable Diffusion 2."""
import diffusers

CLASSES = {
    "ddim": diffusers.DDIMScheduler,
    "pndm": diffusers.PNDMScheduler,
    "euler": diffusers.EulerDiscreteScheduler,
    "euler_a": diffusers.EulerAncestralDiscreteScheduler,
    "dpmpp_2m": diffusers.DPMSolverMultistepScheduler,
    "dpmpp_2m_karras": diffusers.DPMSolverMultistepScheduler,
    "unipc": diffusers.UniPCMultistepScheduler,
    "lcm": diffusers.LCMScheduler,
}
SD2 = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "clip_sample": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
}
