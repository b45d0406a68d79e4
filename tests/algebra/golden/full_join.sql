-- SELECT r.a, s.y FROM r FULL JOIN s ON r.a = s.a

-- @: rows, key _hw_key_1, _hw_key_2, _hw_key_3, changes signed
SELECT
  `a` AS `a`,
  `y` AS `y`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_key_3` AS `_hw_key_3`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `y`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_key_3`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_old__hw_key_3`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `y` AS `y`,
        `r_rowid` AS `_hw_key_1`,
        `s_rowid` AS `_hw_key_2`,
        `_hw_side_r_rowid_s_rowid` AS `_hw_key_3`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          `y` AS `y`,
          `r_rowid`,
          `s_rowid`,
          `_hw_side_r_rowid_s_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_side_r_rowid_s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              `_hw_side_r_rowid_s_rowid`,
              CAST(1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`,
                CASE WHEN `_hw_in_left` IS NULL THEN 2 WHEN `_hw_in_right` IS NULL THEN 1 ELSE 0 END AS `_hw_side_r_rowid_s_rowid`
              FROM (
                SELECT
                  `a`,
                  `r_rowid`,
                  TRUE AS `_hw_in_left`
                FROM (
                  SELECT
                    _l.`a`,
                    _l.`r_rowid`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `rowid` AS `r_rowid`
                    FROM `r@new`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a` AS `_hw_key_0`,
                            `r_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a`,
                              `rowid` AS `r_rowid`,
                              `_hw_w`
                            FROM `r@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                      UNION ALL
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a_2` AS `_hw_key_0`,
                            `s_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a_2`,
                              `y` AS `y`,
                              `rowid` AS `s_rowid`,
                              `_hw_w`
                            FROM `s@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _r
                    ON `a` IS NOT DISTINCT FROM `_hw_key_0`
                ) AS _t
              ) AS _l
              FULL JOIN (
                SELECT
                  `a_2`,
                  `y`,
                  `s_rowid`,
                  TRUE AS `_hw_in_right`
                FROM (
                  SELECT
                    _l.`a_2`,
                    _l.`y`,
                    _l.`s_rowid`
                  FROM (
                    SELECT
                      `a` AS `a_2`,
                      `y` AS `y`,
                      `rowid` AS `s_rowid`
                    FROM `s@new`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a` AS `_hw_key_0`,
                            `r_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a`,
                              `rowid` AS `r_rowid`,
                              `_hw_w`
                            FROM `r@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                      UNION ALL
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a_2` AS `_hw_key_0`,
                            `s_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a_2`,
                              `y` AS `y`,
                              `rowid` AS `s_rowid`,
                              `_hw_w`
                            FROM `s@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _r
                    ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                ) AS _t
              ) AS _r
                ON `a` = `a_2`
            ) AS _t
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_side_r_rowid_s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              `_hw_side_r_rowid_s_rowid`,
              CAST(-1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`,
                CASE WHEN `_hw_in_left` IS NULL THEN 2 WHEN `_hw_in_right` IS NULL THEN 1 ELSE 0 END AS `_hw_side_r_rowid_s_rowid`
              FROM (
                SELECT
                  `a`,
                  `r_rowid`,
                  TRUE AS `_hw_in_left`
                FROM (
                  SELECT
                    _l.`a`,
                    _l.`r_rowid`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `rowid` AS `r_rowid`
                    FROM `r@old`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a` AS `_hw_key_0`,
                            `r_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a`,
                              `rowid` AS `r_rowid`,
                              `_hw_w`
                            FROM `r@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                      UNION ALL
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a_2` AS `_hw_key_0`,
                            `s_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a_2`,
                              `y` AS `y`,
                              `rowid` AS `s_rowid`,
                              `_hw_w`
                            FROM `s@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _r
                    ON `a` IS NOT DISTINCT FROM `_hw_key_0`
                ) AS _t
              ) AS _l
              FULL JOIN (
                SELECT
                  `a_2`,
                  `y`,
                  `s_rowid`,
                  TRUE AS `_hw_in_right`
                FROM (
                  SELECT
                    _l.`a_2`,
                    _l.`y`,
                    _l.`s_rowid`
                  FROM (
                    SELECT
                      `a` AS `a_2`,
                      `y` AS `y`,
                      `rowid` AS `s_rowid`
                    FROM `s@old`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a` AS `_hw_key_0`,
                            `r_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a`,
                              `rowid` AS `r_rowid`,
                              `_hw_w`
                            FROM `r@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                      UNION ALL
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `_hw_key_0`
                        FROM (
                          SELECT
                            `a_2` AS `_hw_key_0`,
                            `s_rowid`,
                            `_hw_w`
                          FROM (
                            SELECT
                              `a` AS `a_2`,
                              `y` AS `y`,
                              `rowid` AS `s_rowid`,
                              `_hw_w`
                            FROM `s@delta`
                          ) AS _t
                        ) AS _t
                        GROUP BY
                          `_hw_key_0`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _r
                    ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                ) AS _t
              ) AS _r
                ON `a` = `a_2`
            ) AS _t
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`,
      `_hw_key_3`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_key_3` AS `_hw_old__hw_key_3`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
    AND `_hw_key_3` IS NOT DISTINCT FROM `_hw_old__hw_key_3`
) AS _t
