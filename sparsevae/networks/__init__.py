"""Networks: tensor -> tensor."""
