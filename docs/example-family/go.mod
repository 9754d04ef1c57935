module example.com/exaone4

go 1.26

require github.com/mkgen/mkgen v0.0.0

replace github.com/mkgen/mkgen => ../..
