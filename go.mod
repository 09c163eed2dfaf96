module dmxfs

go 1.26
